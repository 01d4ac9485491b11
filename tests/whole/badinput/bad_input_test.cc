// SPDX-License-Identifier: Apache-2.0
// Bad config files as a job meets them. tests/control/config has the message about each bad text.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <map>
#include <optional>
#include <thread>

#include "control/agree/plan.h"
#include "tests/control/config/scratch_directory.h"
#include "tests/support/catch.h"

namespace gradmon {
namespace {

using namespace testing;
using std::chrono::milliseconds;

// The message about a config text: its error, its warnings, or "accepted".
std::string message_for(const std::string& text) {
  const auto source = plan_from_config(text, "c.json");
  if (!source) return source.error();
  std::string all;
  for (const std::string& warning : source->warnings)
    all += (all.empty() ? "warning: " : "\nwarning: ") + warning;
  return all.empty() ? "accepted" : all;
}

// The reports of the file within so much fake time.
std::vector<std::string> reports_within(ConfigFile& file, FakeClock& clock, milliseconds duration) {
  std::vector<std::string> all;
  for (const auto end = clock.now + duration; clock.now < end; clock.now += milliseconds(50)) {
    if (const auto report = file.poll())
      all.push_back(*report ? message_for(report->value().text) : report->error());
  }
  return all;
}

using Reports = std::vector<std::string>;

// The peak growth of the resident set during `work`, in bytes; unset if this kernel does not tell.
std::optional<std::size_t> peak_memory_growth(const std::function<void()>& work) {
  const auto field = [](const std::string& name) {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
      if (line.rfind(name, 0) == 0) return std::stoul(line.substr(name.size())) * 1024;
    }
    return 0UL;
  };
  std::ofstream clear_refs("/proc/self/clear_refs");
  clear_refs << 5 << std::flush;  // sets VmHWM to VmRSS
  const std::size_t before = field("VmRSS:");
  work();
  const std::size_t peak = field("VmHWM:");
  if (!clear_refs.good() || peak == 0) return std::nullopt;
  return peak > before ? peak - before : 0;
}

}  // namespace

TEST_CASE("a BOM and CRLF and a missing last newline are accepted and kept on write-back") {
  for (const std::string& before :
       {std::string("\xEF\xBB\xBF{\"dynamic_on\": true}"),
        std::string("{\r\n  \"dynamic_on\": true\r\n}\r\n"), std::string("{\"dynamic_on\": true}")}) {
    ScratchDirectory directory;
    const auto path = directory / "c.json";
    save_old(path, before);
    FakeClock clock;
    ConfigFile file(path, clock.clock());
    CHECK(reports_within(file, clock, milliseconds(1000)) == Reports{"accepted"});
    REQUIRE(file.edit({{"dynamic_on", "false"}}, std::nullopt).has_value());
    auto after = before;
    CHECK(read_text(path) == after.replace(after.find("true"), 4, "false"));
  }
}

TEST_CASE("hostile patterns and depth and size are refused within 8 MB of memory") {
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  std::string patterns = "{\"target_regex\": [";
  for (int i = 0; i < 1000; ++i) patterns += std::string(i == 0 ? "" : ",") + "\"((a{1,100}){1,100}){1,10}\"";
  patterns += "]}";
  ScratchDirectory directory;
  save_in_place(directory / "large", "{");
  fs::resize_file(directory / "large", std::uintmax_t{1} << 30U);
  message_for("{}");  // does not count what is loaded only once
  std::map<std::string, std::string> messages;
  const auto peak = peak_memory_growth([&] {
    messages["depth 100,000"] = message_for(R"({"note": )" + deep + "}");
    messages["1,000 huge patterns"] = message_for(patterns);
    messages["a nested repetition"] =
        message_for(R"({"target_regex": ["((((((a{9}){9}){9}){9}){9}){9}){9}"]})");
    messages["1 GiB"] = read_file(directory / "large").error();
  });
  CHECK(messages["depth 100,000"] == "c.json:1:41: nesting deeper than 32 levels");
  CHECK(messages["1,000 huge patterns"] ==
        "c.json:1:18: /target_regex: found a list, expected a list of at most 256 patterns");
  CHECK(messages["a nested repetition"].find(
            "expected a pattern that RE2 accepts (invalid repetition size: {9})") != std::string::npos);
  CHECK(messages["1 GiB"] == "it is larger than 1 MiB");
  if (GRADMON_SANITIZED) {
    WARN("memory is not measured with a sanitizer");
  } else if (!peak) {
    WARN("skipped: this kernel does not tell the peak memory of a process");
  } else {
    CHECK(*peak <= std::size_t{8'000'000});
  }
}

TEST_CASE("of a growing file never more than 1 MiB is read") {
  ScratchDirectory directory;
  const auto path = directory / "c.json";
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    const std::string block(100'000, ' ');
    while (!stop) {
      std::ofstream out(path, std::ios::trunc);
      for (int i = 0; i < 40 && !stop; ++i) out << block << std::flush;
    }
  });
  int refused = 0;
  std::size_t longest = 0;
  const bool refused_often = eventually([&] {
    const auto read = read_file(path);
    if (read) {
      longest = std::max(longest, read->content.text.size());
    } else {
      refused += read.error() == "it is larger than 1 MiB" ? 1 : 0;
    }
    return refused > 20;
  });
  stop = true;
  writer.join();
  CHECK(refused_often);
  CHECK(longest <= kMaxJsonBytes);
}

TEST_CASE("an unreadable config is reported once and accepted when it becomes readable") {
  ScratchDirectory directory;
  const auto path = directory / "c.json";
  save_old(path, "{}");
  fs::permissions(directory.path(), fs::perms(0755));
  fs::permissions(path, fs::perms(0));
  const bool root = ::geteuid() == 0;
  if (root) REQUIRE(::seteuid(65534) == 0);
  FakeClock clock;
  ConfigFile file(path, clock.clock());
  const auto reports = reports_within(file, clock, milliseconds(30'000));
  if (root) REQUIRE(::seteuid(0) == 0);
  CHECK(reports == Reports{"it cannot be read: Permission denied"});
  fs::permissions(path, fs::perms(0644));
  CHECK(reports_within(file, clock, milliseconds(3000)) == Reports{"accepted"});
}

TEST_CASE("a read-only config is accepted and never edited") {
  ScratchDirectory directory;
  const auto path = directory / "c.json";
  save_old(path, R"({"dynamic_on": true})");
  fs::permissions(path, fs::perms(0444));
  FakeClock clock;
  ConfigFile file(path, clock.clock());
  CHECK(reports_within(file, clock, milliseconds(1000)) == Reports{"accepted"});
  const auto edited = file.edit({{"dynamic_on", "false"}}, std::nullopt);
  REQUIRE_FALSE(edited);
  CHECK(edited.error().text == "it is read-only");
  CHECK(directory.names().size() == 1);
}

}  // namespace gradmon
