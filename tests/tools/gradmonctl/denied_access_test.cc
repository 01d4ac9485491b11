// SPDX-License-Identifier: Apache-2.0
// The program itself, run by a user who may not read what a job's owner has.
#include <sys/stat.h>
#include <unistd.h>

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER
#include "control/client/access_denial.h"
#include "control/host/process_identity.h"
#include "tests/tools/gradmonctl/fake_hub.h"
#include "tests/tools/gradmonctl/gradmonctl_process.h"
#include "tests/tools/gradmonctl/sample_status.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;

constexpr uid_t kStranger = 65'534;

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

bool may_change_user() {
  if (geteuid() == 0) return true;
  WARN("needs root, to become another user");
  return false;
}

struct Ended {
  int code;
  std::string out;
  std::string err;
};

// What a stranger sees who asks with these words.
Ended ask_as_stranger(const std::vector<std::string>& words) {
  GradmonctlProcess ctl(
      words, {"XDG_RUNTIME_DIR=", "GRADMON_ENDPOINT=", "MONITOR_OUTPUT_DIR=", "GRADMON_JOB="}, kStranger);
  const int code = ctl.wait();
  return {code, ctl.out(), ctl.err()};
}

// A place that everybody can enter, with an output directory in it.
struct OutputOfOwner {
  TemporaryDirectory home;
  fs::path out = home / "out";

  explicit OutputOfOwner(mode_t of_out, mode_t of_gradmon) {
    REQUIRE(chmod(home.path().c_str(), 0755) == 0);
    REQUIRE(fs::create_directories(out / ".gradmon" / "epoch"));
    write_text(out / ".gradmon" / "epoch" / "history.jsonl", "{}\n");
    REQUIRE(chmod((out / ".gradmon").c_str(), of_gradmon) == 0);
    REQUIRE(chmod(out.c_str(), of_out) == 0);
  }
};

TEST_CASE("a path that refuses is named with its owner, and one that is missing is not") {
  if (!may_change_user()) return;
  CHECK(access_denial("/no/such/path", Access::read).empty());
  TemporaryDirectory directory;
  CHECK(access_denial(directory.path(), Access::read).empty());
}

TEST_CASE("an output directory that may not be read is told apart from one without a job") {
  if (!may_change_user()) return;
  const OutputOfOwner place(0700, 0750);
  for (const char* command : {"status", "watch", "on", "off", "get", "history", "targets", "cancel"}) {
    const Ended ended = ask_as_stranger({command, "--output-dir", place.out.string()});
    CHECK(ended.code == 5);
    CHECK(ended.out.empty());
    CHECK(has(ended.err, "gradmonctl: " + place.out.string()));
    CHECK(has(ended.err, ": permission denied to "));
    CHECK(has(ended.err, "belongs to root (uid 0) and has mode 0700: run gradmonctl as root"));
    CHECK_FALSE(has(ended.err, "no live job"));
    CHECK_FALSE(has(ended.err, "no history"));
  }
}

TEST_CASE("a job directory that may not be read is told apart from one without a job") {
  if (!may_change_user()) return;
  const OutputOfOwner place(0755, 0750);
  for (const char* command : {"status", "set", "history"}) {
    std::vector<std::string> words{command, "--output-dir", place.out.string()};
    if (words[0] == "set") words.emplace_back("ops=[\"norm\"]");
    const Ended ended = ask_as_stranger(words);
    CHECK(ended.code == 5);
    CHECK(has(ended.err, "gradmonctl: " + (place.out / ".gradmon").string() + ": permission denied to "));
    CHECK(has(ended.err, "it belongs to root (uid 0) and has mode 0750: run gradmonctl as root"));
  }
}

TEST_CASE("a history file that may not be read is no empty history") {
  if (!may_change_user()) return;
  const OutputOfOwner place(0755, 0755);
  const fs::path history = place.out / ".gradmon" / "epoch" / "history.jsonl";
  REQUIRE(chmod(history.c_str(), 0600) == 0);
  const Ended ended = ask_as_stranger({"history", "--output-dir", place.out.string()});
  CHECK(ended.code == 5);
  CHECK(ended.out.empty());
  CHECK(has(ended.err, history.string() + ": permission denied to "));
}

TEST_CASE("a socket that may not be reached is refused at once, and says whose it is") {
  if (!may_change_user()) return;
  const TemporaryDirectory runtime;
  REQUIRE(chmod(runtime.path().c_str(), 0700) == 0);
  Status status = sample_status();
  status.launch_id = "one-" + random_hex(4);
  const FakeHub hub(runtime.path(), status);
  const auto begun = std::chrono::steady_clock::now();
  for (const char* command : {"status", "watch", "history", "off"}) {
    const Ended ended = ask_as_stranger({command, "--endpoint", hub.endpoint()});
    CHECK(ended.code == 5);
    CHECK(has(ended.err, "hub.sock: permission denied to "));
    CHECK(has(ended.err, runtime.path().string() + " belongs to root (uid 0) and has mode 0700"));
  }
  CHECK(std::chrono::steady_clock::now() - begun < std::chrono::seconds(15));
  CHECK(hub.asked().empty());
}

TEST_CASE("a config file that may not be read says whose it is and what to do") {
  if (!may_change_user()) return;
  const TemporaryDirectory directory;
  REQUIRE(chmod(directory.path().c_str(), 0755) == 0);
  const std::string file = (directory / "config.json").string();
  write_text(file, "{}");
  REQUIRE(chmod(file.c_str(), 0600) == 0);
  const std::vector<std::vector<std::string>> all{{"validate", file},
                                                  {"get", "--config", file},
                                                  {"set", "ops=1", "--dry-run", "--config", file},
                                                  {"import", file},
                                                  {"doctor", "--config", file}};
  for (const auto& words : all) {
    const Ended ended = ask_as_stranger(words);
    CHECK(ended.code == 1);
    CHECK(has(ended.out + ended.err, file + ": permission denied to "));
    CHECK(has(ended.out + ended.err, "it belongs to root (uid 0) and has mode 0600: run gradmonctl as root"));
  }
}

TEST_CASE("the doctor tells a directory that may not be entered from a missing one") {
  if (!may_change_user()) return;
  const TemporaryDirectory directory;
  REQUIRE(chmod(directory.path().c_str(), 0700) == 0);
  const std::string inside = (directory / "in").string();
  const Ended ended = ask_as_stranger({"doctor", "--config", inside + "/c.json", "--output-dir", inside});
  CHECK(ended.code == 1);
  CHECK(has(ended.out, "fail  config directory"));
  CHECK(has(ended.out, "fail  output directory"));
  CHECK(has(ended.out, inside + ": permission denied to "));
  CHECK_FALSE(has(ended.out, "make it, or"));
}

}  // namespace
}  // namespace gradmon
