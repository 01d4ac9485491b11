// SPDX-License-Identifier: Apache-2.0
// ConfigFile::edit() changes only its value and loses no save of the user's.
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>

#include "control/config/config_file.h"
#include "control/config/json_text.h"
#include "tests/control/config/scratch_directory.h"
#include "tests/support/catch.h"
#include "tests/support/is_root.h"
#include "tests/support/scale.h"

namespace gradmon {
namespace {

using namespace testing;
using std::chrono::milliseconds;
using Kind = EditError::Kind;

const ConfigFile::Edits kOff{{"dynamic_on", "false"}};
const std::string kSaved = text_of(2);  // by the user, after the first

FileContent first_content(ConfigFile& file) {
  auto report = wait_for_report(file);
  REQUIRE(report.has_value());
  REQUIRE(report->has_value());
  return report->value();
}

// A config file that was saved an hour ago.
struct OldConfig : ScratchDirectory {
  const fs::path config = *this / "c.json";
  OldConfig() { save_old(config, text_of(1)); }
};

// The old config, read by a job.
struct ReadConfig : OldConfig {
  ConfigFile file{config};
  const FileContent seen = first_content(file);
};

void write_and_close(int fd, const std::string& text) {
  REQUIRE(::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  ::close(fd);
}

TEST_CASE("an edit changes only its value and is not reported") {
  ScratchDirectory directory;
  const auto path = directory / "c.json";
  const std::string before = "\xEF\xBB\xBF{\r\n\t\"dynamic_on\" :true ,\r\n\t\"unknown\": [ 1,2 ]\r\n}";
  save_old(path, before);
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

TEST_CASE("the side file is removed two seconds after an edit or with the ConfigFile") {
  const OldConfig directory;
  auto now = std::chrono::steady_clock::time_point{std::chrono::hours(1)};
  {
    ConfigFile file(directory.config, [&] { return now; });
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

TEST_CASE("an edit based on an older save is refused") {
  ReadConfig directory;
  ConfigFile& file = directory.file;
  SECTION("another content") { save_by_rename(directory.config, text_of(2)); }
  SECTION("the same content saved again") { save_in_place(directory.config, text_of(1)); }
  const auto saved_text = read_text(directory.config);
  const auto done = file.edit(kOff, directory.seen.identity);
  REQUIRE_FALSE(done.has_value());
  CHECK(done.error().kind == Kind::changed);
  CHECK(read_text(directory.config) == saved_text);
  CHECK(next_text(file) == saved_text);
}

TEST_CASE("a save right after an edit stays and is reported") {
  ReadConfig directory;
  ConfigFile& file = directory.file;
  REQUIRE(file.edit(kOff, directory.seen.identity).has_value());
  SECTION("by rename") { save_by_rename(directory.config, text_of(2)); }
  SECTION("in place") { save_in_place(directory.config, text_of(2)); }
  SECTION("the same bytes as the edit") { save_in_place(directory.config, with_off(text_of(1))); }
  const auto saved_text = read_text(directory.config);
  CHECK(next_text(file) == saved_text);
  CHECK(read_text(directory.config) == saved_text);
}

TEST_CASE("a displaced file is watched while somebody has it open") {
  const OldConfig directory;
  auto now = std::chrono::steady_clock::time_point{std::chrono::hours(1)};
  ConfigFile file(directory.config, [&] { return now; });
  REQUIRE(file.poll().has_value());
  const int fd = ::open(directory.config.c_str(), O_WRONLY | O_CLOEXEC);
  REQUIRE(file.edit(kOff, std::nullopt).has_value());
  for (int second = 0; second < 30; ++second) {
    now += std::chrono::seconds(1);
    CHECK_FALSE(file.poll().has_value());
  }
  SECTION("until it is written to") {
    write_and_close(fd, kSaved);
    file.poll();
    CHECK(read_text(directory.config) == kSaved);
  }
  SECTION("until it is closed unchanged") {
    ::close(fd);
    file.poll();
    CHECK(directory.names() == std::set<std::string>{"c.json"});
  }
  SECTION("also for hours, until it is written to") {
    now += std::chrono::hours(5);
    CHECK_FALSE(file.poll().has_value());
    write_and_close(fd, kSaved);
    file.poll();
    CHECK(read_text(directory.config) == kSaved);
  }
}

// An old config that an editor has opened, and that a job has edited before it ended. The descriptor is the
// editor's, of the displaced file.
struct HeldConfig : OldConfig {
  int fd = -1;
  HeldConfig() {
    ConfigFile file(config);
    first_content(file);
    fd = ::open(config.c_str(), O_WRONLY | O_CLOEXEC);
    REQUIRE(file.edit(kOff, std::nullopt).has_value());
  }
};

TEST_CASE("a save into a displaced file after the job's end is restored by the next job") {
  const HeldConfig directory;
  REQUIRE(directory.names().size() == 2);
  write_and_close(directory.fd, kSaved);
  ConfigFile next(directory.config);
  CHECK(eventually([&] {
    next.poll();
    return read_text(directory.config) == kSaved;
  }));
  CHECK(directory.names() == std::set<std::string>{"c.json"});
}

TEST_CASE("a save into a displaced file is taken up by the next job although that job has edited the file") {
  const HeldConfig directory;
  ConfigFile next(directory.config);
  first_content(next);
  REQUIRE(next.edit({{"n", "5"}}, std::nullopt).has_value());
  REQUIRE(::write(directory.fd, kSaved.data(), kSaved.size()) == static_cast<ssize_t>(kSaved.size()));
  REQUIRE(next.edit({{"n", "6"}}, std::nullopt).has_value());
  ::close(directory.fd);
  CHECK(next_text(next) == kSaved);
  CHECK(read_text(directory.config) == kSaved);
  CHECK(next.superseded_saves().empty());
}

TEST_CASE("a save into a displaced file is taken up by the next job although the earlier hub still lives") {
  const OldConfig directory;
  auto earlier = std::make_unique<ConfigFile>(directory.config);
  first_content(*earlier);
  const int fd = ::open(directory.config.c_str(), O_WRONLY | O_CLOEXEC);
  REQUIRE(earlier->edit(kOff, std::nullopt).has_value());
  ConfigFile next(directory.config);
  first_content(next);
  write_and_close(fd, kSaved);
  REQUIRE(next.edit({{"n", "6"}}, std::nullopt).has_value());
  SECTION("and ends") { earlier.reset(); }
  SECTION("and looks at the file") { earlier->poll(); }
  CHECK(next_text(next) == kSaved);
  CHECK(read_text(directory.config) == kSaved);
}

TEST_CASE("a save that an earlier job left and that the user has replaced since is named") {
  const HeldConfig directory;
  write_and_close(directory.fd, kSaved);
  save_by_rename(directory.config, text_of(3));
  ConfigFile next(directory.config);
  CHECK(first_content(next).text == text_of(3));
  REQUIRE(eventually([&] {
    next.poll();
    return !next.superseded_saves().empty();
  }));
  const auto names = directory.names();
  REQUIRE(names.size() == 2);
  const auto side = directory / *names.begin();
  CHECK(read_text(side) == kSaved);
  CHECK(next.superseded_saves() ==
        std::vector<std::string>{"an earlier save is in " + side.string() + ": copy it or remove it"});
  fs::remove(side);
  CHECK(next.superseded_saves().empty());
}

TEST_CASE("a displaced file that is still open is left alone by another job") {
  ReadConfig directory;
  ConfigFile& file = directory.file;
  const int fd = ::open(directory.config.c_str(), O_WRONLY | O_CLOEXEC);
  REQUIRE(file.edit(kOff, directory.seen.identity).has_value());
  Recovery other;
  other.age = other.save_age = std::chrono::seconds(-1);
  CHECK(recover_side_files(directory.config, other) == LeftOvers::some);
  CHECK(directory.names().size() == 2);
  write_and_close(fd, kSaved);
  CHECK(first_content(file).text == kSaved);
  CHECK(read_text(directory.config) == kSaved);
}

TEST_CASE("an edit without a base includes a save that was not reported yet") {
  ReadConfig directory;
  ConfigFile& file = directory.file;
  save_by_rename(directory.config, text_of(2));
  const auto done = file.edit(kOff, std::nullopt);
  REQUIRE(done.has_value());
  CHECK(done->text == with_off(text_of(2)));
  CHECK(read_text(directory.config) == done->text);
}

TEST_CASE("an edit that is refused writes nothing") {
  ScratchDirectory directory;
  const auto path = directory / "c.json";
  save_old(path, "{\"a\": 1}");
  ConfigFile file(path);
  const auto identity = read_now(path).content.identity;
  const auto refused = [&](const ConfigFile::Edits& edits) {
    const auto done = file.edit(edits, std::nullopt, [](const std::string&) { FAIL("it is to be written"); });
    REQUIRE_FALSE(done.has_value());
    CHECK(done.error().kind == Kind::invalid);
    return done.error().text;
  };
  CHECK(refused({{"eps", "0"}}) == path.string() + ":1:9: /eps: found 0, expected a number > 0");
  CHECK(refused({{"a", "2"}, {"/a/b", "2"}}) == "/a/b: there is no \"b\" in /a");
  CHECK(read_now(path).content.identity == identity);
  save_in_place(path, "{\"a\": 1,}");
  CHECK(refused({{"a", "2"}}).find("trailing comma") != std::string::npos);
  CHECK(directory.names().size() == 1);
}

TEST_CASE("an edit keeps mode and owner and attributes and the symbolic link") {
  ScratchDirectory directory;
  const auto path = directory / "c.json";
  const auto target = directory / "real.json";
  save_old(target, text_of(1));
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

// Edits the file as `edits` say, one after the other, and checks that it stays the same file.
void check_written_in_place(const fs::path& path, const fs::path& spare = {}) {
  struct stat before {};
  REQUIRE(::stat(path.c_str(), &before) == 0);
  ConfigFile file(path, &std::chrono::steady_clock::now, spare);
  std::string text = first_content(file).text;
  for (const auto& edit : ConfigFile::Edits{{"dynamic_on", "false"},  // longer
                                            {"dynamic_on", "true"},   // shorter
                                            {"n", "7"},               // of the same length
                                            {"n", "7"},               // the same again
                                            {"new", "[1, 2, 3]"}}) {
    CAPTURE(edit.first, edit.second);
    const auto saved = read_now(path).content.identity;
    const auto done = file.edit({edit}, std::nullopt);
    REQUIRE(done.has_value());
    text = set_values(text, {edit}).value();
    CHECK(done->text == text);
    CHECK(read_text(path) == text);
    CHECK(done->identity == read_now(path).content.identity);
    CHECK(done->identity.mtime_ns != saved.mtime_ns);
    CHECK_FALSE(file.poll().has_value());
  }
  struct stat after {};
  REQUIRE(::stat(path.c_str(), &after) == 0);
  CHECK(
      (after.st_dev == before.st_dev && after.st_ino == before.st_ino && after.st_nlink == before.st_nlink));
  CHECK((after.st_mode == before.st_mode && after.st_uid == before.st_uid && after.st_gid == before.st_gid));
  save_in_place(path, text_of(9));
  CHECK(next_text(file) == text_of(9));
}

// Runs it on a thread that has mounts of its own. False: this process may not mount.
bool with_own_mounts(const std::function<void()>& run) {
  bool may = false;
  std::thread([&] {
    may = ::unshare(CLONE_NEWNS) == 0 && ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
    if (may) run();
  }).join();
  return may;
}

TEST_CASE("a file with a second hard link is written in place") {
  ScratchDirectory directory;
  const auto path = directory / "c.json";
  save_in_place(path, text_of(1));
  fs::create_hard_link(path, directory / "other");
  fs::create_symlink("c.json", directory / "link");
  check_written_in_place(directory / "link");
  CHECK(read_text(directory / "other") == text_of(9));
  CHECK(fs::is_symlink(directory / "link"));
  CHECK(directory.names() == std::set<std::string>{"c.json", "link", "other"});
}

TEST_CASE("a file that is a mount point is written in place") {
  ScratchDirectory directory;
  const auto path = directory / "c.json";
  save_in_place(path, "");
  save_in_place(directory / "real.json", text_of(1));
  bool mounted = false;
  const bool may = with_own_mounts([&] {
    mounted = ::mount((directory / "real.json").c_str(), path.c_str(), nullptr, MS_BIND, nullptr) == 0;
    if (mounted) check_written_in_place(path);
  });
  if (!may) WARN("skipped: this process may not mount");
  CHECK(mounted == may);
  if (may) CHECK(read_text(directory / "real.json") == text_of(9));
  CHECK(directory.names() == std::set<std::string>{"c.json", "real.json"});
}

TEST_CASE("a file mounted from a read-only file system stays as it is and the error says why") {
  ScratchDirectory directory;
  const auto path = directory / "c.json";
  save_in_place(path, text_of(1));
  std::string refused = "not mounted";
  const bool may = with_own_mounts([&] {
    if (::mount(path.c_str(), path.c_str(), nullptr, MS_BIND, nullptr) != 0 ||
        ::mount(nullptr, path.c_str(), nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY, nullptr) != 0)
      return;
    ConfigFile file(path);
    first_content(file);
    const auto done = file.edit(kOff, std::nullopt);
    refused = done ? "edited" : done.error().text;
  });
  if (!may) WARN("skipped: this process may not mount");
  if (may) CHECK(refused == "it is read-only");
  CHECK(read_text(path) == text_of(1));
}

TEST_CASE("a file of another owner is written in place") {
  if (!is_root("be another user")) return;
  constexpr uid_t kOwner = 1234;
  constexpr uid_t kUser = 5678;
  constexpr gid_t kGroup = 4321;
  ScratchDirectory directory;
  const auto path = directory / "c.json";
  const auto spare = directory / "spare";
  save_in_place(path, text_of(1));
  fs::create_directory(spare);
  REQUIRE(::chown(spare.c_str(), kUser, kGroup) == 0);
  REQUIRE(::chown(path.c_str(), kOwner, kGroup) == 0);
  REQUIRE(::chown(directory.path().c_str(), kOwner, kGroup) == 0);
  REQUIRE(::chmod(path.c_str(), 0664) == 0);
  mode_t of_directory = 0;
  SECTION("in a directory of the group") { of_directory = 02775; }
  SECTION("in a directory that only its owner may write to") { of_directory = 0755; }
  REQUIRE(::chmod(directory.path().c_str(), of_directory) == 0);
  REQUIRE((::setegid(kGroup) == 0 && ::seteuid(kUser) == 0));
  check_written_in_place(path, spare);
  std::string refused;
  if (of_directory == 0755) {
    ConfigFile file(path);
    first_content(file);
    const auto done = file.edit(kOff, std::nullopt);
    refused = done ? "edited" : done.error().text;
  }
  REQUIRE((::seteuid(0) == 0 && ::setegid(0) == 0));
  const std::string denied = "cannot create a file in ";
  if (of_directory == 0755)
    CHECK(refused == denied + "its directory: Permission denied; in place: " + denied +
                         directory.path().string() + ": Permission denied");
  CHECK(directory.names() == std::set<std::string>{"c.json", "spare"});
  CHECK(fs::is_empty(spare));
}

// A long text, so that the comparison before the write takes milliseconds.
TEST_CASE("a save in place is not lost to a write in place") {
  ScratchDirectory directory;
  const auto path = directory / "c.json";
  const auto long_text = [](int n) {
    return "{\"dynamic_on\": true, \"n\": " + std::to_string(1000 + n) + ", \"x\": \"" +
           std::string(900'000, 'x') + "\"}";
  };
  save_old(path, long_text(0));
  fs::create_hard_link(path, directory / "other");
  ConfigFile file(path);
  first_content(file);
  const int saves = full_scale() ? 500 : 40;
  std::atomic<bool> done{false};
  std::atomic<int> edited{0};
  std::atomic<int> lost{0};
  std::thread user([&] {
    std::mt19937 random(7);
    for (int n = 1; n <= saves && lost == 0; ++n) {
      const auto whole = long_text(n);
      save_in_place(path, whole);
      const int before = edited;
      if (!eventually([&] { return edited > before; })) break;
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
      const auto has_it = [&] {  // not during a write
        const auto now = read_text(path);
        return now == whole || now == with_off(whole);
      };
      if (!eventually(has_it, std::chrono::seconds(10))) lost = n;
    }
    done = true;
  });
  while (!done) {
    const auto now = read_file(path);
    const ConfigFile::Edits other{{"dynamic_on", edited % 2 == 0 ? "false" : "true"}};  // each writes
    if (now && file.edit(other, now->content.identity).has_value()) ++edited;
  }
  user.join();
  CHECK(edited > 0);
  CHECK(lost == 0);
}

// How long an edit takes that nothing disturbs.
std::chrono::microseconds time_of_edit(const fs::path& place) {
  ScratchDirectory directory(place);
  const auto path = directory / "c.json";
  save_old(path, text_of(0));
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
  save_old(path, text_of(0));
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
      seen = first_content(file);
    } while (seen.text == text_of(-n));
    REQUIRE(seen.text == text_of(n));
    REQUIRE(read_text(path) == text_of(n));
  }
  CHECK(edited > 0);  // otherwise no edit was early enough to race
}

TEST_CASE("no save on disk or in /dev/shm is lost in a race with a write-back") {
  race(fs::temp_directory_path(), scaled(20, 1200));
  if (::access("/dev/shm", W_OK) != 0) WARN("skipped: no /dev/shm to write to");
  if (::access("/dev/shm", W_OK) == 0) race("/dev/shm", scaled(20, 1200));
}

}  // namespace
}  // namespace gradmon
