// SPDX-License-Identifier: Apache-2.0
// ConfigFile::edit() changes only its value and loses no save of the user's.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>

#include "control/config/config_file.h"
#include "control/config/json_edit.h"
#include "control/debian_version.h"
#include "tests/control/config/scratch_directory.h"
#include "tests/support/scale.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using namespace testing;
using std::chrono::milliseconds;
using Kind = EditError::Kind;

const ConfigFile::Edits kOff{{"dynamic_on", "false"}};

FileContent first_content(ConfigFile& file) {
  auto report = wait_for_report(file);
  REQUIRE(report.has_value());
  REQUIRE(report->has_value());
  return report->value();
}

}  // namespace

TEST_CASE("an edit changes only its value and is not reported", "[configfile]") {
  ScratchDirectory directory;
  const auto path = directory / "c.json";
  const std::string before = "\xEF\xBB\xBF{\r\n\t\"dynamic_on\" :true ,\r\n\t\"unknown\": [ 1,2 ]\r\n}";
  save_in_place(path, before);
  make_old(path);
  ConfigFile file(path);
  const auto seen = first_content(file);
  const auto done = file.edit(kOff, seen.identity);
  REQUIRE(done.has_value());
  CHECK(done->text == "\xEF\xBB\xBF{\r\n\t\"dynamic_on\" :false ,\r\n\t\"unknown\": [ 1,2 ]\r\n}");
  CHECK(read_text(path) == done->text);
  CHECK(read_now(path).content.identity == done->identity);
  CHECK_FALSE(wait_for_report(file, milliseconds(1500)).has_value());
  save_in_place(path, before);
  CHECK(next_text(file) == before);
}

TEST_CASE("the side file is removed two seconds after an edit or with the ConfigFile", "[configfile]") {
  ScratchDirectory directory;
  const auto path = directory / "c.json";
  save_in_place(path, text_of(1));
  make_old(path);
  auto now = std::chrono::steady_clock::time_point{std::chrono::hours(1)};
  {
    ConfigFile file(path, [&] { return now; });
    REQUIRE(file.poll().has_value());
    REQUIRE(file.edit(kOff, std::nullopt).has_value());
    now += milliseconds(1900);
    CHECK_FALSE(file.poll().has_value());
    CHECK(directory.names().size() == 2);
    now += milliseconds(200);
    CHECK_FALSE(file.poll().has_value());
    CHECK(directory.names() == std::set<std::string>{"c.json"});
    REQUIRE(file.edit({{"n", "2"}}, std::nullopt).has_value());
  }
  CHECK(directory.names() == std::set<std::string>{"c.json"});
}

TEST_CASE("an edit based on an older save is refused", "[configfile]") {
  ScratchDirectory directory;
  const auto path = directory / "c.json";
  save_in_place(path, text_of(1));
  make_old(path);
  ConfigFile file(path);
  const auto seen = first_content(file);
  SECTION("another content") { save_by_rename(path, text_of(2)); }
  SECTION("the same content saved again") { save_in_place(path, text_of(1)); }
  const auto saved_text = read_text(path);
  const auto done = file.edit(kOff, seen.identity);
  REQUIRE_FALSE(done.has_value());
  CHECK(done.error().kind == Kind::changed);
  CHECK(read_text(path) == saved_text);
  CHECK(next_text(file) == saved_text);
}

TEST_CASE("a save right after an edit stays and is reported", "[configfile]") {
  ScratchDirectory directory;
  const auto path = directory / "c.json";
  save_in_place(path, text_of(1));
  make_old(path);
  ConfigFile file(path);
  const auto seen = first_content(file);
  REQUIRE(file.edit(kOff, seen.identity).has_value());
  SECTION("by rename") { save_by_rename(path, text_of(2)); }
  SECTION("in place") { save_in_place(path, text_of(2)); }
  SECTION("the same bytes as the edit") { save_in_place(path, with_off(text_of(1))); }
  const auto saved_text = read_text(path);
  CHECK(next_text(file) == saved_text);
  CHECK(read_text(path) == saved_text);
}

TEST_CASE("a write after an edit through a descriptor opened before it is not lost", "[configfile]") {
  ScratchDirectory directory;
  const auto path = directory / "c.json";
  save_in_place(path, text_of(1));
  make_old(path);
  ConfigFile file(path);
  const auto seen = first_content(file);
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  REQUIRE(file.edit(kOff, seen.identity).has_value());
  const auto text = text_of(2);
  REQUIRE(::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  ::close(fd);
  CHECK(next_text(file) == text);
  CHECK(read_text(path) == text);
}

TEST_CASE("a displaced file is watched while somebody has it open", "[configfile]") {
  ScratchDirectory directory;
  const auto path = directory / "c.json";
  save_in_place(path, text_of(1));
  make_old(path);
  auto now = std::chrono::steady_clock::time_point{std::chrono::hours(1)};
  ConfigFile file(path, [&] { return now; });
  REQUIRE(file.poll().has_value());
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  REQUIRE(file.edit(kOff, std::nullopt).has_value());
  for (int second = 0; second < 30; ++second) {
    now += std::chrono::seconds(1);
    CHECK_FALSE(file.poll().has_value());
  }
  SECTION("until it is written to") {
    const auto text = text_of(2);
    REQUIRE(::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    ::close(fd);
    file.poll();
    CHECK(read_text(path) == text);
  }
  SECTION("until it is closed unchanged") {
    ::close(fd);
    file.poll();
    CHECK(directory.names() == std::set<std::string>{"c.json"});
  }
  SECTION("for at most a minute") {
    now += std::chrono::seconds(31);
    file.poll();
    CHECK(directory.names() == std::set<std::string>{"c.json"});
    ::close(fd);
  }
}

TEST_CASE("a save into a displaced file after the job's end is restored by the next job", "[configfile]") {
  ScratchDirectory directory;
  const auto path = directory / "c.json";
  save_in_place(path, text_of(1));
  make_old(path);
  int fd = -1;
  {
    ConfigFile file(path);
    const auto seen = first_content(file);
    fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    REQUIRE(file.edit(kOff, seen.identity).has_value());
  }
  REQUIRE(directory.names().size() == 2);
  const auto text = text_of(2);
  REQUIRE(::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  ::close(fd);
  recover_side_files(path, std::chrono::seconds(-1));
  CHECK(read_text(path) == text);
  CHECK(directory.names() == std::set<std::string>{"c.json"});
}

TEST_CASE("a displaced file that is still open is left alone by another job", "[configfile]") {
  ScratchDirectory directory;
  const auto path = directory / "c.json";
  save_in_place(path, text_of(1));
  make_old(path);
  ConfigFile file(path);
  const auto seen = first_content(file);
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  REQUIRE(file.edit(kOff, seen.identity).has_value());
  CHECK(recover_side_files(path, std::chrono::seconds(-1)) == LeftOvers::some);
  CHECK(directory.names().size() == 2);
  const auto text = text_of(2);
  REQUIRE(::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  ::close(fd);
  auto report = wait_for_report(file);
  REQUIRE(report.has_value());
  REQUIRE(report->has_value());
  CHECK((*report)->text == text);
  CHECK(read_text(path) == text);
}

TEST_CASE("an edit without a base includes a save that was not reported yet", "[configfile]") {
  ScratchDirectory directory;
  const auto path = directory / "c.json";
  save_in_place(path, text_of(1));
  make_old(path);
  ConfigFile file(path);
  first_content(file);
  save_by_rename(path, text_of(2));
  const auto done = file.edit(kOff, std::nullopt);
  REQUIRE(done.has_value());
  CHECK(done->text == with_off(text_of(2)));
  CHECK(read_text(path) == done->text);
}

TEST_CASE("an edit that is refused writes nothing", "[configfile]") {
  ScratchDirectory directory;
  const auto path = directory / "c.json";
  save_in_place(path, "{\"a\": 1}");
  make_old(path);
  ConfigFile file(path);
  const auto identity = read_now(path).content.identity;
  const auto refused = [&](const ConfigFile::Edits& edits, const ConfigFile::Check& check) {
    const auto done = file.edit(edits, std::nullopt, check);
    REQUIRE_FALSE(done.has_value());
    CHECK(done.error().kind == Kind::invalid);
    return done.error().text;
  };
  CHECK(refused({{"a", "2"}}, [](std::string_view text) { return "not " + std::string(text); }) ==
        "not {\"a\": 2}");
  CHECK(refused({{"a", "2"}, {"/a/b", "2"}}, nullptr) == "/a/b: there is no \"b\" in /a");
  CHECK(read_now(path).content.identity == identity);
  save_in_place(path, "{\"a\": 1,}");
  CHECK(refused({{"a", "2"}}, nullptr).find("trailing comma") != std::string::npos);
  CHECK(directory.names().size() == 1);
}

TEST_CASE("an edit keeps mode and owner and attributes and the symbolic link", "[configfile]") {
  ScratchDirectory directory;
  const auto path = directory / "c.json";
  const auto target = directory / "real.json";
  save_in_place(target, text_of(1));
  make_old(target);
  fs::create_symlink("real.json", path);
  REQUIRE(::chmod(target.c_str(), 0642) == 0);
  const bool root = ::geteuid() == 0;
  if (root) REQUIRE(::chown(target.c_str(), 1234, 4321) == 0);
  if (!root) WARN("skipped: the owner, because only root can change it");
  const bool attributes = ::setxattr(target.c_str(), "user.gradmon", "kept", 4, 0) == 0;
  if (!attributes) WARN("skipped: the attributes, because this file system has none");
  ConfigFile file(path);
  first_content(file);
  REQUIRE(file.edit(kOff, std::nullopt).has_value());
  CHECK(fs::is_symlink(path));
  CHECK(fs::read_symlink(path) == "real.json");
  struct stat status {};
  REQUIRE(::stat(target.c_str(), &status) == 0);
  CHECK((status.st_mode & 07777U) == 0642);
  if (root) CHECK((status.st_uid == 1234 && status.st_gid == 4321));
  char value[8] = {};
  if (attributes) CHECK(::getxattr(target.c_str(), "user.gradmon", value, sizeof value) == 4);
  if (attributes) CHECK(std::string_view(value, 4) == "kept");
  CHECK(read_text(target) == with_off(text_of(1)));
}

TEST_CASE("a file that cannot be replaced is unchanged and the error says why", "[configfile]") {
  ScratchDirectory directory;
  const auto path = directory / "c.json";
  save_in_place(path, text_of(1));
  make_old(path);
  std::string reason;
  SECTION("read-only") {
    REQUIRE(::chmod(path.c_str(), 0444) == 0);
    reason = "it is read-only";
  }
  SECTION("a second hard link") {
    fs::create_hard_link(path, directory / "other");
    reason = "it has more than one hard link, which replacing it would break";
  }
  ConfigFile file(path);
  first_content(file);
  const auto before = directory.names();
  const auto done = file.edit(kOff, std::nullopt);
  REQUIRE_FALSE(done.has_value());
  CHECK(done.error().kind == Kind::unwritable);
  CHECK(done.error().text == reason);
  CHECK(read_text(path) == text_of(1));
  CHECK(directory.names() == before);
}

namespace {

// How long an edit takes that nothing disturbs.
std::chrono::microseconds time_of_edit(const fs::path& place) {
  ScratchDirectory directory(place);
  const auto path = directory / "c.json";
  save_in_place(path, text_of(0));
  make_old(path);
  ConfigFile file(path);
  const auto seen = first_content(file);
  const auto begun = std::chrono::steady_clock::now();
  REQUIRE(file.edit(kOff, seen.identity));
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - begun);
}

// Lets one save race with one edit, `races` times. After each race the save must be in place.
void race(const fs::path& place, int races) {
  const auto longest_delay = std::max(std::chrono::microseconds(10'000), 4 * time_of_edit(place));
  ScratchDirectory directory(place);
  const auto path = directory / "c.json";
  save_in_place(path, text_of(0));
  make_old(path);
  ConfigFile file(path);
  auto seen = first_content(file);
  std::mt19937 random(3);
  int edited = 0;
  for (int n = 1; n <= races; ++n) {
    const auto user_delay =
        std::chrono::microseconds(static_cast<std::int64_t>(random()) % longest_delay.count());
    const auto own_delay = std::chrono::microseconds(random() % 1000);
    std::atomic<bool> go{false};
    std::thread user([&] {
      while (!go) std::this_thread::yield();
      std::this_thread::sleep_for(user_delay);
      if (n % 3 == 0) {
        save_in_place(path, text_of(n));
      } else if (n % 3 == 1) {
        save_by_rename(path, text_of(n));
      } else {
        save_in_place(path, text_of(-n));
        save_by_rename(path, text_of(n));
      }
    });
    go = true;
    std::this_thread::sleep_for(own_delay);
    edited += file.edit(kOff, seen.identity).has_value() ? 1 : 0;
    user.join();
    CAPTURE(place, n);
    do {
      const auto report = wait_for_report(file);
      REQUIRE(report.has_value());
      REQUIRE(report->has_value());
      seen = report->value();
    } while (seen.text == text_of(-n));
    REQUIRE(seen.text == text_of(n));
    REQUIRE(read_text(path) == text_of(n));
  }
  CHECK(edited > 0);  // otherwise no edit was early enough to race
}

}  // namespace

TEST_CASE("no save on disk is lost in a race with a write-back", "[configfile]") {
  race(fs::temp_directory_path(), scaled(20, 2000));
}

TEST_CASE("no save in /dev/shm is lost in a race with a write-back", "[configfile]") {
  if (::access("/dev/shm", W_OK) != 0) {
    WARN("skipped: no /dev/shm to write to");
    return;
  }
  race("/dev/shm", scaled(20, 2000));
}

TEST_CASE("a user who saves continuously loses no save to write-backs", "[configfile]") {
  ScratchDirectory directory;
  const auto path = directory / "c.json";
  save_in_place(path, text_of(0));
  ConfigFile file(path);
  const int last = full_scale() ? 10'000 : 600;
  std::atomic<int> lost{0};
  std::atomic<bool> done{false};
  std::thread user([&] {
    const auto holds = [&](int n) {
      return value_at(read_text(path), "/n") == std::string_view(std::to_string(n));
    };
    std::mt19937 random(5);
    for (int n = 1; n <= last && lost == 0; ++n) {
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 9000));
      n % 4 == 0 ? save_in_place(path, text_of(n)) : save_by_rename(path, text_of(n));
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
      while (!holds(n) && lost == 0) {
        if (std::chrono::steady_clock::now() > end) lost = n;
        std::this_thread::yield();
      }
    }
    done = true;
  });
  int edited = 0;
  int refused = 0;
  while (!done) {
    const auto now = read_file(path);
    const bool ok = now && file.edit(kOff, now->content.identity).has_value();
    ++(ok ? edited : refused);
    file.poll();
  }
  user.join();
  CAPTURE(edited, refused);
  CHECK(lost == 0);
  CHECK(edited > 0);
  CHECK(refused > 0);
  CHECK(value_at(read_text(path), "/n") == std::string_view(std::to_string(last)));
}

}  // namespace gradmon
