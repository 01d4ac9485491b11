// SPDX-License-Identifier: Apache-2.0
// Bad config texts and files, one after the other: each input, and
// exactly what is said of it (bad_input.golden; GRADMON_WRITE_GOLDEN=1 writes it).
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include "control/config/config_parser.h"
#include "control/config/json_locate.h"
#include "control/debian_version.h"
#include "control/wire/plan_source.h"
#include "tests/control/config/scratch_directory.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using namespace testing;
using std::chrono::milliseconds;

// What the file says of each line, by the line and the name of the input.
class Golden {
 public:
  explicit Golden(std::string line) : line_(std::move(line)) {
    std::ifstream in(GRADMON_BADINPUT_GOLDEN);
    std::string key;
    for (std::string text; std::getline(in, text);) {
      if (text.rfind("== ", 0) == 0) {
        key = text.substr(3);
      } else {
        all_[key] += text + "\n";
      }
    }
  }
  void check(const std::string& input, const std::string& said) {
    const std::string key = line_ + ": " + input;
    if (std::getenv("GRADMON_WRITE_GOLDEN") != nullptr) {
      std::ofstream(GRADMON_BADINPUT_GOLDEN, std::ios::app) << "== " << key << "\n" << said << "\n";
      return;
    }
    CAPTURE(key);
    CHECK(all_[key] == said + "\n");
  }

 private:
  const std::string line_;
  std::map<std::string, std::string> all_;
};

// What rank 0 says of a text: the error that keeps the plan in force, or the warnings.
std::string said_of(const std::string& text) {
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

// What the file says within so much fake time.
std::vector<std::string> said_within(ConfigFile& file, FakeClock& clock, milliseconds duration) {
  std::vector<std::string> all;
  for (const auto end = clock.now + duration; clock.now < end; clock.now += milliseconds(50)) {
    if (const auto report = file.poll())
      all.push_back(*report ? said_of(report->value().text) : report->error());
  }
  return all;
}

using HubLogLine = std::vector<std::string>;

// The growth of the resident set at its highest during `work`, in bytes.
std::size_t most_memory_of(const std::function<void()>& work) {
  const auto field = [](const std::string& name) {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
      if (line.rfind(name, 0) == 0) return std::stoul(line.substr(name.size())) * 1024;
    }
    return 0UL;
  };
  std::ofstream("/proc/self/clear_refs") << 5;
  const std::size_t before = field("VmRSS:");
  work();
  const std::size_t highest = field("VmHWM:");
  return highest > before ? highest - before : 0;
}

}  // namespace

TEST_CASE("config missing at start: waited for and off") {
  ScratchDirectory directory;
  FakeClock clock;
  ConfigFile file(directory / "c.json", clock.clock());
  CHECK(said_within(file, clock, milliseconds(5000)) == HubLogLine{"there is no such file"});
  save_in_place(directory / "c.json", "{}");
  CHECK(said_within(file, clock, milliseconds(5000)) == HubLogLine{"accepted"});
}

TEST_CASE("config deleted later: said once and picked up when it is back") {
  ScratchDirectory directory;
  save_in_place(directory / "c.json", "{}");
  FakeClock clock;
  ConfigFile file(directory / "c.json", clock.clock());
  REQUIRE(said_within(file, clock, milliseconds(5000)) == HubLogLine{"accepted"});
  fs::remove(directory / "c.json");
  CHECK(said_within(file, clock, milliseconds(60'000)) == HubLogLine{"there is no such file"});
  save_in_place(directory / "c.json", "{\"eps\": 1}");
  CHECK(said_within(file, clock, milliseconds(5000)) == HubLogLine{"accepted"});
}

TEST_CASE("empty or blanks or NULs or UTF-16 or cut: quiet for a second and then the error") {
  Golden golden("empty");
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
    REQUIRE(said_within(file, clock, milliseconds(5000)).size() == 1);
    save_in_place(directory / "c.json", text);
    CHECK(said_within(file, clock, milliseconds(900)).empty());
    const auto said = said_within(file, clock, milliseconds(10'000));
    REQUIRE(said.size() == 1);
    golden.check(name, said.front());
  }
}

TEST_CASE("BOM and CRLF and no newline at the end: accepted and kept on write-back") {
  for (const std::string& before :
       {std::string("\xEF\xBB\xBF{\"dynamic_on\": true}"),
        std::string("{\r\n  \"dynamic_on\": true\r\n}\r\n"), std::string("{\"dynamic_on\": true}")}) {
    ScratchDirectory directory;
    const auto path = directory / "c.json";
    save_in_place(path, before);
    make_old(path);
    FakeClock clock;
    ConfigFile file(path, clock.clock());
    CHECK(said_within(file, clock, milliseconds(1000)) == HubLogLine{"accepted"});
    REQUIRE(file.edit({{"dynamic_on", "false"}}, std::nullopt).has_value());
    auto after = before;
    CHECK(read_text(path) == after.replace(after.find("true"), 4, "false"));
  }
}

TEST_CASE("bytes that are no text: the error with the place") {
  Golden golden("no text");
  golden.check("invalid UTF-8", said_of("{\"note\": \"a\xC3(\"}"));
  golden.check("invalid UTF-8 in a key", said_of("{\"a\xFF\": 1}"));
  golden.check("overlong", said_of("{\"note\": \"\xC0\xAF\"}"));
  golden.check("lone surrogate", said_of(R"({"note": "\ud800"})"));
  golden.check("raw control character", said_of("{\"note\": \"a\tb\"}"));
  golden.check("raw NUL", said_of(std::string("{\"note\": \"a\0b\"}", 15)));
}

TEST_CASE("nearly JSON: the error with a hint") {
  Golden golden("nearly JSON");
  golden.check("trailing comma", said_of("{\n  \"eps\": 1,\n}\n"));
  golden.check("comment", said_of("{\n  // on\n  \"eps\": 1\n}\n"));
  golden.check("NaN", said_of(R"({"eps": NaN})"));
  golden.check("single quotes", said_of("{'eps': 1}"));
  golden.check("007", said_of(R"({"collect_times": 007})"));
  golden.check("two documents", said_of("{}\n{}"));
}

TEST_CASE("duplicate key also written with escapes: both places") {
  Golden golden("duplicate key");
  golden.check("twice", said_of("{\n  \"eps\": 1,\n  \"eps\": 2\n}"));
  golden.check("with escapes", said_of("{\"eps\": 1,\n \"\\u0065ps\": 2}"));
}

TEST_CASE("wrong type or out of range: what was expected and what was found") {
  Golden golden("wrong value");
  for (const char* value : {"\"true\"", "1", "null", "[]"}) {
    golden.check(std::string("dynamic_on ") + value,
                 said_of(std::string(R"({"dynamic_on": )") + value + "}"));
  }
  golden.check("array at the root", said_of("[]"));
  for (const char* value : {"0", "-1", "1.5", "9223372036854775808", "1e400"}) {
    golden.check(std::string("step_interval ") + value,
                 said_of(std::string(R"({"step_interval": )") + value + "}"));
  }
  CHECK(said_of(R"({"step_interval": 1.0})") == "accepted");
}

TEST_CASE("unknown key: accepted with the nearest known key") {
  Golden golden("unknown key");
  golden.check("step_intervall", said_of(R"({"step_intervall": 2})"));
  golden.check("nothing near", said_of(R"({"colour": 2})"));
}

TEST_CASE("hostile patterns and depth and size: refused within 8 MB") {
  Golden golden("hostile");
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  std::string patterns = "{\"target_regex\": [";
  for (int i = 0; i < 1000; ++i) patterns += std::string(i == 0 ? "" : ",") + "\"((a{1,100}){1,100}){1,10}\"";
  patterns += "]}";
  ScratchDirectory directory;
  save_in_place(directory / "large", "{");
  fs::resize_file(directory / "large", std::uintmax_t{1} << 30U);
  said_of("{}");  // what is loaded once is not counted
  std::map<std::string, std::string> said;
  const std::size_t most = most_memory_of([&] {
    said["depth 100,000"] = said_of(R"({"note": )" + deep + "}");
    said["1,000 huge patterns"] = said_of(patterns);
    said["a nested repetition"] = said_of(R"({"target_regex": ["((((((a{9}){9}){9}){9}){9}){9}){9}"]})");
    said["1 GiB"] = read_file(directory / "large").error();
  });
  for (auto& [name, text] : said) golden.check(name, text.substr(0, text.find('\n')));
  if (GRADMON_SANITIZED) {
    WARN("memory is not measured with a sanitizer");
  } else {
    CHECK(most <= std::size_t{8'000'000});
  }
}

TEST_CASE("a growing file: never more than 1 MiB of it") {
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
  CHECK(eventually([&] {
    const auto read = read_file(path);
    if (read) {
      REQUIRE(read->content.text.size() <= kMaxJsonBytes);
    } else {
      refused += read.error() == "it is larger than 1 MiB" ? 1 : 0;
    }
    return refused > 20;
  }));
  stop = true;
  writer.join();
}

TEST_CASE("not a regular file: refused without blocking") {
  Golden golden("no regular file");
  ScratchDirectory directory;
  const auto said = [&](const char* name) { golden.check(name, read_file(directory / name).error()); };
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
    said(name);
  ::close(fd);
}

TEST_CASE("unreadable: kept and tried again") {
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
  const auto said = said_within(file, clock, milliseconds(30'000));
  if (root) REQUIRE(::seteuid(0) == 0);
  CHECK(said == HubLogLine{"it cannot be read: Permission denied"});
  fs::permissions(path, fs::perms(0644));
  CHECK(said_within(file, clock, milliseconds(3000)) == HubLogLine{"accepted"});
}

TEST_CASE("read-only file: collected by and left alone") {
  ScratchDirectory directory;
  const auto path = directory / "c.json";
  save_in_place(path, R"({"dynamic_on": true})");
  make_old(path);
  fs::permissions(path, fs::perms(0444));
  FakeClock clock;
  ConfigFile file(path, clock.clock());
  CHECK(said_within(file, clock, milliseconds(1000)) == HubLogLine{"accepted"});
  const auto edited = file.edit({{"dynamic_on", "false"}}, std::nullopt);
  REQUIRE_FALSE(edited);
  CHECK(edited.error().text == "it is read-only");
  CHECK(directory.names().size() == 1);
}

TEST_CASE("the file flips every millisecond: a few reports a second and the last state wins") {
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
      std::this_thread::sleep_for(milliseconds(1));  // the subject: how fast it flips
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

TEST_CASE("clock jumps: a changed time stamp counts and not a newer one") {
  ScratchDirectory directory;
  const auto path = directory / "c.json";
  save_in_place(path, "{}");
  FakeClock clock;
  ConfigFile file(path, clock.clock());
  REQUIRE(said_within(file, clock, milliseconds(5000)).size() == 1);
  for (const auto jump : {-1000, 1000, -900'000, 0}) {
    fs::last_write_time(path, fs::file_time_type::clock::now() + std::chrono::hours(jump));
    CHECK(said_within(file, clock, milliseconds(5000)) == HubLogLine{"accepted"});
  }
}

}  // namespace gradmon
