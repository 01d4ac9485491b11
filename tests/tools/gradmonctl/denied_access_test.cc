// SPDX-License-Identifier: Apache-2.0
// gradmonctl as a process of a user who may not read the files of the job's owner.
#include <sys/stat.h>
#include <unistd.h>

#include "control/host/child_process.h"
#include "tests/support/catch.h"
#include "tests/support/is_root.h"
#include "tests/tools/gradmonctl/fake_hub.h"
#include "tests/tools/gradmonctl/gradmonctl_process.h"
#include "tests/tools/gradmonctl/sample_status.h"
#include "tools/gradmonctl/cli/job.h"

namespace gradmon {
namespace {

constexpr uid_t kOtherUser = 65'534;

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// Runs gradmonctl with `words` as another user than the owner.
ProcessResult run_as_other_user(const std::vector<std::string>& words) {
  return run_gradmonctl(
      words, {"XDG_RUNTIME_DIR=", "GRADMON_ENDPOINT=", "MONITOR_OUTPUT_DIR=", "GRADMON_JOB="}, kOtherUser);
}

// True if every user can enter this build's directories: a clone below `mktemp -d` is root's alone.
bool all_can_enter_the_build() {
  for (fs::path place = fs::read_symlink("/proc/self/exe").parent_path(); place.has_relative_path();
       place = place.parent_path())
    if ((fs::status(place).permissions() & fs::perms::others_exec) == fs::perms::none) return false;
  return true;
}

// An output directory of root in a directory that everybody can enter. The modes are those of
// the output directory and of its .gradmon.
struct DeniedOutputDirectory {
  TemporaryDirectory home;
  fs::path out = home / "out";

  explicit DeniedOutputDirectory(mode_t output_mode, mode_t gradmon_mode) {
    REQUIRE(chmod(home.path().c_str(), 0755) == 0);
    REQUIRE(fs::create_directories(out / ".gradmon" / "epoch"));
    write_text(out / ".gradmon" / "epoch" / "history.jsonl", "{}\n");
    REQUIRE(chmod((out / ".gradmon").c_str(), gradmon_mode) == 0);
    REQUIRE(chmod(out.c_str(), output_mode) == 0);
  }
};

TEST_CASE(
    "an unreadable directory is reported as denied with its owner and mode, and not as one without a job") {
  if (!is_root("become another user")) return;
  const auto [output_mode, gradmon_mode, denied, mode] =
      GENERATE(table<mode_t, mode_t, std::string, std::string>(
          {{0700, 0750, "", "0700"}, {0755, 0750, ".gradmon", "0750"}}));
  const DeniedOutputDirectory place(output_mode, gradmon_mode);
  for (const char* command : {"status", "watch", "on", "off", "get", "set", "history", "targets", "cancel"}) {
    CAPTURE(command, mode);
    std::vector<std::string> words{command, "--output-dir", place.out.string()};
    if (words[0] == "set") words.emplace_back("ops=[\"norm\"]");
    const ProcessResult ended = run_as_other_user(words);
    CHECK(ended.code == 5);
    CHECK(ended.out.empty());
    CHECK(has(ended.err, "gradmonctl: " + (denied.empty() ? place.out : place.out / denied).string()));
    CHECK(has(ended.err, ": permission denied to "));
    CHECK(has(ended.err, "belongs to root (uid 0) and has mode " + mode + ": run gradmonctl as root"));
    CHECK_FALSE(has(ended.err, "no live job"));
    CHECK_FALSE(has(ended.err, "no history"));
  }
}

TEST_CASE("an unreadable history file is reported as denied and not as an empty history") {
  if (!is_root("become another user")) return;
  const DeniedOutputDirectory place(0755, 0755);
  const fs::path history = place.out / ".gradmon" / "epoch" / "history.jsonl";
  REQUIRE(chmod(history.c_str(), 0600) == 0);
  const ProcessResult ended = run_as_other_user({"history", "--output-dir", place.out.string()});
  CHECK(ended.code == 5);
  CHECK(ended.out.empty());
  CHECK(has(ended.err, history.string() + ": permission denied to "));
}

TEST_CASE("a denied socket is reported at once with its owner") {
  if (!is_root("become another user")) return;
  const TemporaryDirectory runtime;
  Status status = sample_status();
  status.launch_id = "one-" + random_hex(4);
  const FakeHub hub(runtime.path(), status);
  for (const char* command : {"status", "watch", "history", "off"}) {
    const auto begun = std::chrono::steady_clock::now();
    const ProcessResult ended = run_as_other_user({command, "--endpoint", hub.endpoint()});
    CHECK(std::chrono::steady_clock::now() - begun < kAnswerTime);  // It did not wait for an answer.
    CHECK(ended.code == 5);
    CHECK(has(ended.err, "hub.sock: permission denied to "));
    CHECK(has(ended.err, runtime.path().string() + " belongs to root (uid 0) and has mode 0700"));
  }
  CHECK(hub.asked().empty());
}

TEST_CASE("an unreadable config file is reported with its owner and the remedy") {
  if (!is_root("become another user")) return;
  const TemporaryDirectory directory;
  REQUIRE(chmod(directory.path().c_str(), 0755) == 0);
  const std::string file = (directory / "config.json").string();
  write_text(file, "{}");
  REQUIRE(chmod(file.c_str(), 0600) == 0);
  std::vector<std::vector<std::string>> all{{"validate", file},
                                            {"get", "--config", file},
                                            {"set", "ops=1", "--dry-run", "--config", file},
                                            {"doctor", "--config", file}};
  if (all_can_enter_the_build()) all.push_back({"import", file});  // Python reads it
  for (const auto& words : all) {
    const ProcessResult ended = run_as_other_user(words);
    CHECK(ended.code == 1);
    CHECK(has(ended.out + ended.err, file + ": permission denied to "));
    CHECK(has(ended.out + ended.err, "it belongs to root (uid 0) and has mode 0600: run gradmonctl as root"));
  }
}

TEST_CASE("the doctor reports denied directories and does not call them missing") {
  if (!is_root("become another user")) return;
  const TemporaryDirectory directory;
  const std::string inside = (directory / "in").string();
  const ProcessResult ended =
      run_as_other_user({"doctor", "--config", inside + "/c.json", "--output-dir", inside});
  CHECK(ended.code == 1);
  CHECK(has(ended.out, "fail  config directory"));
  CHECK(has(ended.out, "fail  output directory"));
  CHECK(has(ended.out, inside + ": permission denied to "));
  CHECK_FALSE(has(ended.out, "make it, or"));
}

}  // namespace
}  // namespace gradmon
