// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <array>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "tools/gradmonctl/cli/command_line.h"
#include "tools/gradmonctl/cli/printable.h"
#include "tools/gradmonctl/commands/config_text.h"

namespace gradmon {
namespace {

struct InitRequest {
  std::string file = "monitor_config.json";
  std::string collect, format, alerts;  // "": option not given
  std::optional<std::int64_t> step_interval, collect_times;
  bool yes = false;
  bool force = false;
};

struct KindChoice {
  const char* word;
  const char* key;
};
constexpr std::array<KindChoice, 4> kKindChoices{KindChoice{"gradients", "wg_distribution"},
                                                 {"weights", "param_distribution"},
                                                 {"moments", "mv_distribution"},
                                                 {"activations", "xy_distribution"}};
constexpr const char* kKindWords = "gradients, weights, moments, activations";
constexpr const char* kFormatWords = "csv, tensorboard, sqlite";

std::vector<std::string> words_in(std::string text) {
  std::replace(text.begin(), text.end(), ',', ' ');
  std::istringstream words(text);
  return {std::istream_iterator<std::string>(words), {}};
}

bool are_kinds(const std::string& text) {
  const auto words = words_in(text);
  return !words.empty() && std::all_of(words.begin(), words.end(), [](const std::string& word) {
    return std::any_of(kKindChoices.begin(), kKindChoices.end(),
                       [&](const KindChoice& kind) { return word == kind.word; });
  });
}

bool is_format(const std::string& text) { return text == "csv" || text == "tensorboard" || text == "sqlite"; }
bool is_yes_or_no(const std::string& text) { return text == "yes" || text == "no"; }

// Asks until the answer is valid. An empty line, or the end of the input, chooses `usual`.
std::string ask_for(const char* question, const std::string& usual, bool (*valid)(const std::string&),
                    const Console& console) {
  for (std::string line;;) {
    console.err << question << " [" << usual << "]: " << std::flush;
    if (!std::getline(std::cin, line) || line.empty()) return usual;
    if (valid(line)) return line;
    console.err << "found \"" << printable(line) << "\"\n";
  }
}

// "$KEY" stands for a value.
constexpr std::string_view kConfig = R"json({
  "//": "Keys that begin with // are comments. All keys: gradmonctl schema --text",

  "// dynamic_on": "the switch of a job with DYNAMIC_MONITOR=True or dynamic=True: gradmonctl on, gradmonctl off",
  "dynamic_on": false,
  "// collect_times": "so many steps are collected, every step_interval-th one; then it is off again",
  "collect_times": $collect_times,
  "step_interval": $step_interval,

  "// kinds": "gradients before and after reduction (wg), weights (param), moments (mv), activations (xy)",
  "wg_distribution": $wg_distribution,
  "param_distribution": $param_distribution,
  "mv_distribution": $mv_distribution,
  "xy_distribution": $xy_distribution,
  "// targets": "names of modules or parameters, as \"layers.3\": {}; empty: all",
  "targets": {},
  "// ops": "numbers of each tensor; also zeros",
  "ops": ["norm", "mean", "min", "max", "nans"],
  "// scalars": "numbers of each step; the program reports loss: monitor.scalar(\"loss\", loss)",
  "scalars": {"loss": "records", "grad-norm": "records"},
  "// alert": "what gradmonctl alerts lists: NaN, and a norm or loss that jumps up",
  "alert": {"rules": [$rules]},

  "// format": "csv, tensorboard, sqlite, or a list of these",
  "format": "$format",
  "// step_count_per_record": "steps in one CSV file",
  "step_count_per_record": 1000,
  "// digits": "significant digits in CSV",
  "digits": 7,
  "// replicas": "what DistributedDataParallel keeps the same on all ranks is written by one; all: by each",
  "replicas": "first"
}
)json";

std::string config_for(const InitRequest& request) {
  std::string text(kConfig);
  const auto put = [&text](const std::string& key, const std::string& value) {
    text.replace(text.find("$" + key), key.size() + 1, value);
  };
  const auto chosen = words_in(request.collect);
  for (const KindChoice& kind : kKindChoices) {
    const bool on = std::find(chosen.begin(), chosen.end(), kind.word) != chosen.end();
    put(kind.key, on ? "true" : "false");
  }
  put("collect_times", std::to_string(request.collect_times.value_or(1000)));
  put("step_interval", std::to_string(request.step_interval.value_or(1)));
  put("rules",
      request.alerts == "yes" ? R"({"rule_name": "AnomalyNan"}, {"rule_name": "AnomalySpike"})" : "");
  put("format", request.format);
  return text;
}

// Asks for what no option says.
void complete(InitRequest& request, const Console& console) {
  const bool asks = !request.yes && ::isatty(STDIN_FILENO) == 1 && ::isatty(STDERR_FILENO) == 1;
  const auto fill = [&](std::string& value, const std::string& what, const char* usual,
                        bool (*valid)(const std::string&)) {
    if (value.empty()) value = asks ? ask_for(what.c_str(), usual, valid, console) : usual;
  };
  fill(request.collect, std::string("what to collect: ") + kKindWords, "gradients", are_kinds);
  fill(request.format, std::string("format: ") + kFormatWords, "csv", is_format);
  fill(request.alerts, "alerts on NaN and spikes: yes, no", "yes", is_yes_or_no);
}

int make_config(InitRequest& request, const Console& console) {
  if (!request.force && ::access(request.file.c_str(), F_OK) == 0)
    return report_error(request.file + ": exists already; --force replaces it", console);
  complete(request, console);
  const int code = make_config_file(request.file, config_for(request),
                                    request.force ? Existing::replace : Existing::keep, console);
  if (code != kExitDone) return code;
  console.err << "made " << printable(request.file)
              << "; in the program: gradmon.Monitor(CONFIG, dynamic=True).watch(model, optimizer); "
                 "while it runs: gradmonctl on\n";
  return kExitDone;
}

}  // namespace

Subcommand init_subcommand() {
  const auto request = std::make_shared<InitRequest>();
  Argument format{"--format", &request->format, "csv (default), tensorboard or sqlite", "FORMAT"};
  format.choices = {"csv", "tensorboard", "sqlite"};
  Argument alerts{"--alerts", &request->alerts, "yes (default) or no: alerts on NaN and spikes", "ANSWER"};
  alerts.choices = {"yes", "no"};
  Argument interval{"--step-interval", &request->step_interval, "collect every K steps (1)", "K"};
  interval.least = 1;
  return {request,
          "init [FILE] [OPTIONS]",
          "Make a config file to begin with, by a few questions",
          {{"FILE", &request->file, "the config file to make (monitor_config.json)"},
           {"--collect", &request->collect,
            std::string("comma-separated: ") + kKindWords + "\n(default: gradients)", "KINDS"},
           format,
           alerts,
           interval,
           {"--collect-times", &request->collect_times, "stop after so many collected steps (1000)", "N"},
           {"--yes", &request->yes, "ask nothing"},
           {"--force", &request->force, "replace the file if it exists"}},
          [request](const Console& console) { return make_config(*request, console); },
          [request]() -> std::string {
            if (request->collect.empty() || are_kinds(request->collect)) return "";
            return "--collect: found \"" + request->collect + "\"; expected a list of " + kKindWords;
          },
          "Asks in a terminal for what no option says. The file has a comment for each key.\n"
          "\n"
          "examples:\n"
          "  gradmonctl init\n"
          "  gradmonctl init train.json --collect gradients,activations --step-interval 10 --yes"};
}

}  // namespace gradmon
