// SPDX-License-Identifier: Apache-2.0
// Bad config texts and files, each with the exact message about it, in golden/.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <map>
#include <optional>
#include <thread>

#include "control/config/config_parser.h"
#include "control/config/json_locate.h"
#include "control/debian_version.h"
#include "control/wire/plan_source.h"
#include "tests/control/config/scratch_directory.h"
#include "tests/support/golden.h"
#include "tests/support/scale.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using namespace testing;
using std::chrono::milliseconds;

// The messages about the inputs of one test, and the golden file that has the expected ones.
class Golden {
 public:
  explicit Golden(std::string file) : file_(std::move(file)) {}
  void add(const std::string& input, const std::string& message) {
    messages_ += "== " + input + "\n" + message + "\n";
  }
  // Call it after the last add().
  void check() const { CHECK(golden_difference(file_, messages_) == ""); }

 private:
  const std::string file_;
  std::string messages_;
};

// The message about a config text: its error, its warnings, or "accepted".
std::string message_for(const std::string& text) {
  const auto source = plan_from_config(text, "c.json");
  if (!source) return source.error();
  std::string all;
  for (const std::string& warning : source->warnings)
    all += (all.empty() ? "warning: " : "\nwarning: ") + warning;
  return all.empty() ? "accepted" : all;
}

struct FakeClock {
  std::chrono::steady_clock::time_point now{std::chrono::hours(1)};
  ConfigFile::Clock clock() {
    return [this] { return now; };
  }
};

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

TEST_CASE("a config missing at start is reported once and accepted when it appears") {
  ScratchDirectory directory;
  FakeClock clock;
  ConfigFile file(directory / "c.json", clock.clock());
  CHECK(reports_within(file, clock, milliseconds(5000)) == Reports{"there is no such file"});
  save_in_place(directory / "c.json", "{}");
  CHECK(reports_within(file, clock, milliseconds(5000)) == Reports{"accepted"});
}

TEST_CASE("a deleted config is reported once and accepted when it is back") {
  ScratchDirectory directory;
  save_in_place(directory / "c.json", "{}");
  FakeClock clock;
  ConfigFile file(directory / "c.json", clock.clock());
  REQUIRE(reports_within(file, clock, milliseconds(5000)) == Reports{"accepted"});
  fs::remove(directory / "c.json");
  CHECK(reports_within(file, clock, milliseconds(60'000)) == Reports{"there is no such file"});
  save_in_place(directory / "c.json", "{\"eps\": 1}");
  CHECK(reports_within(file, clock, milliseconds(5000)) == Reports{"accepted"});
}

TEST_CASE("an empty or cut or UTF-16 config is reported only if it stays so for a second") {
  Golden golden("empty.txt");
  const std::pair<const char*, std::string> inputs[] = {
      {"empty", ""},
      {"blanks", "  \n\t\n"},
      {"NULs", std::string(3, '\0')},
      {"UTF-16", std::string("\xFF\xFE{\0}\0", 6)},
      {"cut in a key", "{\"dyn"},
      {"cut behind a key", "{\"dynamic_on\""},
      {"cut before a value", "{\"dynamic_on\": "},
      {"cut in a value", "{\"dynamic_on\": tr"},
      {"cut before the end", "{\"dynamic_on\": true"},
  };
  for (const auto& [name, text] : inputs) {
    ScratchDirectory directory;
    save_in_place(directory / "c.json", "{}");
    FakeClock clock;
    ConfigFile file(directory / "c.json", clock.clock());
    REQUIRE(reports_within(file, clock, milliseconds(5000)).size() == 1);
    save_in_place(directory / "c.json", text);
    CHECK(reports_within(file, clock, milliseconds(900)).empty());
    const auto reports = reports_within(file, clock, milliseconds(10'000));
    REQUIRE(reports.size() == 1);
    golden.add(name, reports.front());
  }
  golden.check();
}

TEST_CASE("a BOM and CRLF and a missing last newline are accepted and kept on write-back") {
  for (const std::string& before :
       {std::string("\xEF\xBB\xBF{\"dynamic_on\": true}"),
        std::string("{\r\n  \"dynamic_on\": true\r\n}\r\n"), std::string("{\"dynamic_on\": true}")}) {
    ScratchDirectory directory;
    const auto path = directory / "c.json";
    save_in_place(path, before);
    make_old(path);
    FakeClock clock;
    ConfigFile file(path, clock.clock());
    CHECK(reports_within(file, clock, milliseconds(1000)) == Reports{"accepted"});
    REQUIRE(file.edit({{"dynamic_on", "false"}}, std::nullopt).has_value());
    auto after = before;
    CHECK(read_text(path) == after.replace(after.find("true"), 4, "false"));
  }
}

TEST_CASE("bytes that are not UTF-8 text are refused with their place") {
  Golden golden("no_text.txt");
  golden.add("invalid UTF-8", message_for("{\"note\": \"a\xC3(\"}"));
  golden.add("invalid UTF-8 in a key", message_for("{\"a\xFF\": 1}"));
  golden.add("overlong", message_for("{\"note\": \"\xC0\xAF\"}"));
  golden.add("lone surrogate", message_for(R"({"note": "\ud800"})"));
  golden.add("raw control character", message_for("{\"note\": \"a\tb\"}"));
  golden.add("raw NUL", message_for(std::string("{\"note\": \"a\0b\"}", 15)));
  golden.check();
}

TEST_CASE("a config that is nearly JSON is refused with a hint") {
  Golden golden("nearly_json.txt");
  golden.add("trailing comma", message_for("{\n  \"eps\": 1,\n}\n"));
  golden.add("comment", message_for("{\n  // on\n  \"eps\": 1\n}\n"));
  golden.add("NaN", message_for(R"({"eps": NaN})"));
  golden.add("single quotes", message_for("{'eps': 1}"));
  golden.add("007", message_for(R"({"collect_times": 007})"));
  golden.add("two documents", message_for("{}\n{}"));
  golden.check();
}

TEST_CASE("a duplicate key is refused with both places even if written with escapes") {
  Golden golden("duplicate_key.txt");
  golden.add("twice", message_for("{\n  \"eps\": 1,\n  \"eps\": 2\n}"));
  golden.add("with escapes", message_for("{\"eps\": 1,\n \"\\u0065ps\": 2}"));
  golden.check();
}

TEST_CASE("a wrong type or range is refused with the expected and the found value") {
  Golden golden("wrong_value.txt");
  for (const char* value : {"\"true\"", "1", "null", "[]"}) {
    golden.add(std::string("dynamic_on ") + value,
               message_for(std::string(R"({"dynamic_on": )") + value + "}"));
  }
  golden.add("array at the root", message_for("[]"));
  for (const char* value : {"0", "-1", "1.5", "9223372036854775808", "1e400"}) {
    golden.add(std::string("step_interval ") + value,
               message_for(std::string(R"({"step_interval": )") + value + "}"));
  }
  golden.check();
  CHECK(message_for(R"({"step_interval": 1.0})") == "accepted");
}

TEST_CASE("an unknown key is accepted with a warning that names the nearest known key") {
  Golden golden("unknown_key.txt");
  golden.add("step_intervall", message_for(R"({"step_intervall": 2})"));
  golden.add("nothing near", message_for(R"({"colour": 2})"));
  golden.check();
}

TEST_CASE("hostile patterns and depth and size are refused within 8 MB of memory") {
  Golden golden("hostile.txt");
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
  for (const auto& [name, text] : messages) golden.add(name, text.substr(0, text.find('\n')));
  golden.check();
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

TEST_CASE("a file that is not regular is refused without blocking") {
  Golden golden("no_regular_file.txt");
  ScratchDirectory directory;
  REQUIRE(::mkfifo((directory / "FIFO").c_str(), 0600) == 0);
  fs::create_directory(directory / "directory");
  fs::create_symlink("/dev/zero", directory / "device");
  fs::create_symlink("nowhere", directory / "dangling link");
  fs::create_symlink("looping link", directory / "looping link");
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string socket = directory / "socket";
  socket.copy(address.sun_path, sizeof address.sun_path - 1);
  REQUIRE(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  for (const char* name : {"FIFO", "directory", "device", "dangling link", "looping link", "socket"})
    golden.add(name, read_file(directory / name).error());
  ::close(fd);
  golden.check();
}

TEST_CASE("an unreadable config is reported once and accepted when it becomes readable") {
  ScratchDirectory directory;
  const auto path = directory / "c.json";
  save_in_place(path, "{}");
  make_old(path);
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
  save_in_place(path, R"({"dynamic_on": true})");
  make_old(path);
  fs::permissions(path, fs::perms(0444));
  FakeClock clock;
  ConfigFile file(path, clock.clock());
  CHECK(reports_within(file, clock, milliseconds(1000)) == Reports{"accepted"});
  const auto edited = file.edit({{"dynamic_on", "false"}}, std::nullopt);
  REQUIRE_FALSE(edited);
  CHECK(edited.error().text == "it is read-only");
  CHECK(directory.names().size() == 1);
}

TEST_CASE("a config that changes every millisecond gives a few reports a second and the last state wins") {
  ScratchDirectory directory;
  const auto path = directory / "c.json";
  const auto text = [](int n) { return "{\"collect_times\": " + std::to_string(n) + "}"; };
  save_in_place(path, text(0));
  make_old(path);
  ConfigFile file(path);
  REQUIRE(next_text(file) == text(0));
  const int flips = full_scale() ? 60'000 : 1500;
  const auto start = std::chrono::steady_clock::now();
  std::thread user([&] {
    for (int n = 1; n <= flips; ++n) {
      save_by_rename(path, text(n));
      std::this_thread::sleep_for(milliseconds(1));  // not a wait: the rate of changes is under test
    }
  });
  int reports = 0;
  std::string last;
  for (; last != text(flips) && last != "(nothing)"; ++reports) last = next_text(file);
  user.join();
  const auto quarters = (std::chrono::steady_clock::now() - start) / milliseconds(250);
  CHECK(last == text(flips));
  CHECK(reports <= quarters + 2);
}

TEST_CASE("a time stamp that jumps forward or back counts as a change") {
  ScratchDirectory directory;
  const auto path = directory / "c.json";
  save_in_place(path, "{}");
  FakeClock clock;
  ConfigFile file(path, clock.clock());
  REQUIRE(reports_within(file, clock, milliseconds(5000)).size() == 1);
  for (const auto jump : {-1000, 1000, -900'000, 0}) {
    fs::last_write_time(path, fs::file_time_type::clock::now() + std::chrono::hours(jump));
    CHECK(reports_within(file, clock, milliseconds(5000)) == Reports{"accepted"});
  }
}

}  // namespace gradmon
