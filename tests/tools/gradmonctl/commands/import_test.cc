// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <fstream>
#include <sstream>

#include "control/config/config_parser.h"
#include "control/debian_version.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_directory.h"
#include "tests/writers/file_size_limit.h"
#include "tools/gradmonctl/commands/commands.h"
#include "tools/gradmonctl/commands/import_mindformers.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

// The example in the documentation of MindSpore Transformers, with the keys that it omits.
const char* const kExample = R"(seed: 0
output_dir: './output'

monitor_config:
    monitor_on: True
    dump_path: './dump'
    target: ['layers.0', 'layers.1'] # the first two layers
    invert: False
    step_interval: 1
    local_loss_format: ['log', 'tensorboard']
    device_local_loss_format: ['log', 'tensorboard']
    local_norm_format: ['log', 'tensorboard']
    device_local_norm_format: 'tensorboard'
    optimizer_state_format: log
    weight_state_format: null
    throughput_baseline: 12.5
    print_struct: False
    check_for_nan_in_loss_and_grad: True

tensorboard:
    tensorboard_dir: 'worker/tensorboard'
    tensorboard_queue_size: 10
    log_loss_scale_to_tensorboard: True
    log_timers_to_tensorboard: True
    log_expert_load_to_tensorboard: True

callbacks:
    - type: MFLossMonitor
      per_print_times: 1
    - type: TopkBiasBalanceCallback
    - type: CheckpointMonitor
      prefix: "llm"
)";

struct ImportRun {
  explicit ImportRun(const std::string& yaml, const std::string& output = "") {
    file = (scratch / "train.yaml").string();
    std::ofstream(file) << yaml;
    const Console console{out, err};
    code = import_command({file, output.empty() ? "" : (scratch / output).string()}, console);
  }
  // The text on stderr, without the file's directory.
  std::string messages() const {
    std::string text = err.str();
    for (std::size_t at = text.find(file); at != std::string::npos; at = text.find(file))
      text.replace(at, file.size(), "train.yaml");
    return text;
  }

  const TemporaryDirectory scratch;
  std::string file;
  std::ostringstream out;
  std::ostringstream err;
  int code = -1;
};

Config config_of(const std::string& yaml) {
  const auto imported = import_mindformers(yaml);
  REQUIRE(imported);
  const auto parsed = parse_config(imported->config, "imported");
  REQUIRE(parsed);
  return parsed->config;
}

std::string error_of(const std::string& yaml) {
  const ImportRun run(yaml);
  CHECK(run.code == kExitInvalidConfig);
  CHECK(run.out.str().empty());
  return run.messages();
}

TEST_CASE("the documented example becomes a config and a table of every key") {
  const ImportRun run(kExample);
  CHECK(run.code == kExitDone);
  CHECK(golden_difference("import_config.json", run.out.str()) == "");
  CHECK(golden_difference("import_table.txt", run.messages()) == "");
}

TEST_CASE("the imported config is valid and has the same meaning") {
  const Config config = config_of(kExample);
  CHECK(config.dynamic_on);
  CHECK(config.target_regex == std::vector<std::string>{"layers.0", "layers.1"});
  CHECK(config.throughput_baseline == 12.5);
  REQUIRE(config.scalars.size() >= 4);
  CHECK(config.scalars[0] == Config::Scalar{"local_loss", true, true});
  CHECK(config.scalars[3] == Config::Scalar{"device_local_norm", false, true});
}

TEST_CASE("without a tensorboard section all scalars go to the log") {
  const Config config =
      config_of("monitor_config: {monitor_on: yes, local_norm_format: tensorboard, throughput_baseline: 3}");
  REQUIRE(config.scalars.size() == 2);
  CHECK(config.scalars[0] == Config::Scalar{"local_norm", true, false});
  CHECK(config.scalars[1] == Config::Scalar{"throughput_linearity", true, false});
  CHECK(config.format == std::vector<Config::Format>{Config::Format::csv});
}

TEST_CASE("with the monitor off only the scalars of callbacks are imported") {
  const Config config = config_of(
      "monitor_config: {monitor_on: False, local_norm_format: log, step_interval: 5}\n"
      "callbacks: [{type: MFLossMonitor, per_print_times: 10}]");
  CHECK(config.dynamic_on);
  CHECK(config.step_interval == 10);
  REQUIRE(config.scalars.size() == 5);
  CHECK(config.scalars[0] == Config::Scalar{"learning-rate", true, false});
  CHECK_FALSE(config_of("monitor_config:\n").dynamic_on);
}

TEST_CASE("an invalid value is an error with its place and the expected value") {
  CHECK(error_of("monitor_config:\n  monitor_on: True\n  step_interval: 0\n") ==
        "train.yaml:3:3: monitor_config.step_interval: found 0, expected an integer >= 1\n");
  CHECK(error_of("monitor_config:\n  monitor_on: True\n  invert: 'no'\n  local_norm_format: [log, file]\n"
                 "  throughput_baseline: -1\n") ==
        "train.yaml:3:3: monitor_config.invert: found \"no\", expected true or false\n"
        "train.yaml:4:3: monitor_config.local_norm_format: found [\"log\",\"file\"], expected 'log', "
        "'tensorboard', a list of these, or null\n"
        "train.yaml:5:3: monitor_config.throughput_baseline: found -1, expected a number > 0\n");
  CHECK(error_of("monitor_config: {monitor_on: True, throughput_baseline: .inf}")
            .find("expected a number > 0\n") != std::string::npos);
  CHECK(error_of("tensorboard:\n  log_timers_to_tensorboard: 1\n") ==
        "train.yaml:2:3: tensorboard.log_timers_to_tensorboard: found 1, expected true or false\n");
}

TEST_CASE("an unsupported regular expression is an error") {
  const std::string said = error_of("monitor_config: {monitor_on: True, target: ['(?=x)']}");
  CHECK(said.find("train.yaml:1:36: monitor_config.target: found [\"(?=x)\"], expected") == 0);
}

TEST_CASE("invalid YAML and duplicate keys are errors with their place") {
  CHECK(error_of("").find("train.yaml:1:1: expected a mapping") == 0);
  CHECK(error_of("a: 1\n---\nb: 2\n") == "train.yaml:3:1: more than one YAML document\n");
  CHECK(error_of("monitor_config: " + std::string(100'000, '[')).find("nested too deeply\n") !=
        std::string::npos);
  CHECK(error_of("monitor_config:\n  a: [1\n").find("train.yaml:") == 0);
  CHECK(error_of("- 1\n") == "train.yaml:1:1: expected a mapping of keys to values\n");
  CHECK(error_of("callbacks:\n  - 3\n") == "train.yaml:2:5: callbacks[0]: expected a mapping\n");
  CHECK(error_of("tensorboard:\n  x: 1\n  x: 2\n") == "train.yaml:3:3: tensorboard.x: duplicate key\n");
  CHECK(error_of("tensorboard: 3\n") ==
        "train.yaml:1:14: tensorboard: expected a mapping, or a list of mappings\n");
}

TEST_CASE("a target that is not a list of strings is an error") {
  for (const char* target : {"[[a]]", "{a: b}", "[a, {b: c}]", "&self [*self]"}) {
    CAPTURE(target);
    const std::string said =
        error_of(std::string("monitor_config: {monitor_on: True, target: ") + target + "}");
    CHECK(said.find("monitor_config.target: found ") != std::string::npos);
  }
}

TEST_CASE("a merge key is an error that names it") {
  const std::string text = "merge keys are not supported; write the merged keys out\n";
  CHECK(error_of("base: &base {monitor_on: True}\nmonitor_config:\n  <<: *base\n") ==
        "train.yaml:3:3: monitor_config.<<: " + text);
  CHECK(error_of("base: &base {monitor_config: {monitor_on: True}}\n<<: *base\n") ==
        "train.yaml:2:1: <<: " + text);
}

TEST_CASE("bytes that are not UTF-8 are an error with their place") {
  CHECK(error_of("monitor_config:\n  monitor_on: true\n  target: [\"\xff\xfe\"]\n") ==
        "train.yaml:3:13: not valid UTF-8\n");
  CHECK(error_of("a: \xe5\xb1\x82 # \xff\n") == "train.yaml:1:8: not valid UTF-8\n");
  CHECK(error_of(std::string("\xff\xfe"
                             "a\0:\0",
                             6)) == "train.yaml:1:1: not valid UTF-8\n");
}

TEST_CASE("nested aliases are not expanded") {
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 30; ++i) {
    const std::string last = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + last + ", " + last + "]\n";
  }
  const auto imported = import_mindformers(bomb + "tensorboard: {x: *a29}\n");
  REQUIRE(imported);
  CHECK(imported->keys.at(0).value == "[{},{}]");
}

TEST_CASE("import creates a new file and does not overwrite an existing one") {
  const ImportRun made(kExample, "config.json");
  CHECK(made.code == kExitDone);
  CHECK(made.out.str().empty());
  CHECK(golden_difference("import_config.json", read_text(made.scratch / "config.json")) == "");
  std::ostringstream out;
  std::ostringstream err;
  CHECK(import_command({made.file, made.file}, Console{out, err}) == kExitFailed);
  CHECK(err.str().find("gradmonctl: " + made.file + ": File exists\n") != std::string::npos);
  CHECK(read_text(made.file) == kExample);
}

TEST_CASE("import leaves no part of a config that it could not write") {
  const ImportRun source(kExample);
  const auto made = source.scratch / "config.json";
  std::ostringstream out;
  std::ostringstream err;
  int code = kExitDone;
  {
    const FileSizeLimit limit(10);
    code = import_command({source.file, made.string()}, Console{out, err});
  }
  CHECK(code == kExitFailed);
  CHECK(err.str().find("gradmonctl: " + made.string() + ": File too large\n") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(made));
}

TEST_CASE("a missing file is an error with the reason") {
  std::ostringstream out;
  std::ostringstream err;
  CHECK(import_command({"/no/such.yaml", ""}, Console{out, err}) == kExitFailed);
  CHECK(err.str() == "gradmonctl: /no/such.yaml: No such file or directory\n");
}

}  // namespace
}  // namespace gradmon
