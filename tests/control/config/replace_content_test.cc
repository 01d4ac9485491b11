// SPDX-License-Identifier: Apache-2.0
// One replacement of a file, and the recovery of side files.
#include "control/config/replace_content.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "tests/control/config/scratch_directory.h"
#include "tests/support/catch.h"
#include "tests/support/is_root.h"

namespace gradmon {
namespace {

using namespace testing;

const std::string kBaseTime = "1234567890abcdef";

// The side file of an edit that set `dynamic_on` of text_of(1) to false.
fs::path side_of(const ScratchDirectory& directory) {
  return directory / (".c.json.gradmon-prev-" + sha256_hex(text_of(1)).substr(0, 12) + "-" +
                      sha256_hex(with_off(text_of(1))).substr(0, 12) + "-" + kBaseTime + "-00000000");
}

Recovery of_age(std::chrono::seconds age) {
  Recovery recovery;
  recovery.age = recovery.save_age = age;
  return recovery;
}

LeftOvers recover(const fs::path& path, std::chrono::seconds age) {
  Recovery recovery = of_age(age);
  return recover_side_files(path, recovery);
}

TEST_CASE("the fallback without an exchange replaces the file only if it is unchanged") {
  ScratchDirectory directory;
  const auto path = directory / "c.json";
  save_in_place(path, text_of(1));
  const auto base = read_now(path);
  std::vector<DisplacedFile> displaced;
  const auto done = replace_content(path, base, content_of(text_of(2)), displaced, Replacement::rename);
  REQUIRE(done.has_value());
  CHECK(read_text(path) == text_of(2));
  CHECK(done->content.identity == read_now(path).content.identity);
  const auto again = replace_content(path, base, content_of(text_of(3)), displaced, Replacement::rename);
  REQUIRE_FALSE(again.has_value());
  CHECK(again.error().kind == EditError::Kind::changed);
  CHECK(read_text(path) == text_of(2));
  CHECK(directory.names().size() == 1);
}

TEST_CASE("whether a displaced file of another user is open is not known") {
  if (!is_root("be another user")) return;
  ScratchDirectory directory;
  REQUIRE(::chmod(directory.path().c_str(), 0755) == 0);
  const DisplacedFile file{directory / "c.json", directory / "side", {}};
  save_in_place(file.side, text_of(1));
  CHECK(is_open_elsewhere(file) == OpenElsewhere::no);
  REQUIRE(::seteuid(1234) == 0);
  const OpenElsewhere open = is_open_elsewhere(file);
  REQUIRE(::seteuid(0) == 0);
  CHECK(open == OpenElsewhere::unknown);
}

TEST_CASE("whether a displaced file on which no lease can be taken is open is not known") {
  ScratchDirectory directory;
  const DisplacedFile file{directory / "c.json", directory / "side", {}};
  CHECK(is_open_elsewhere(file) == OpenElsewhere::no);
  REQUIRE(::mkfifo(file.side.c_str(), 0600) == 0);  // a lease fails with EINVAL, as on NFS
  CHECK(is_open_elsewhere(file) == OpenElsewhere::unknown);
}

TEST_CASE("a displaced save is kept while the target cannot be read and is restored later") {
  ScratchDirectory directory;
  const auto path = directory / "c.json";
  const auto side = side_of(directory);
  const auto save = text_of(2);
  save_in_place(side, save);
  SECTION("the target is missing") {}
  SECTION("the target is a directory") { fs::create_directory(path); }
  CHECK(recover(path, std::chrono::seconds(-1)) == LeftOvers::some);
  CHECK(read_text(side) == save);
  fs::remove(path);
  save_in_place(path, with_off(text_of(1)));
  CHECK(recover(path, std::chrono::seconds(-1)) == LeftOvers::none);
  CHECK(read_text(path) == save);
  CHECK(directory.names() == std::set<std::string>{"c.json"});
}

TEST_CASE("a save displaced by a killed process is restored and its leftovers are removed") {
  ScratchDirectory directory;
  const auto path = directory / "c.json";
  const auto side = side_of(directory);
  const auto set_time = [](const fs::path& file, std::int64_t ns) {
    const timespec times[2] = {{ns / 1'000'000'000, ns % 1'000'000'000},
                               {ns / 1'000'000'000, ns % 1'000'000'000}};
    REQUIRE(::utimensat(AT_FDCWD, file.c_str(), times, 0) == 0);
  };
  std::string expected;
  SECTION("killed before the exchange") {
    save_in_place(path, expected = text_of(1));
    save_in_place(side, with_off(text_of(1)));
  }
  SECTION("killed before the new file was whole") {
    save_in_place(path, expected = with_off(text_of(1)));  // a later edit has succeeded
    save_in_place(directory / ".c.json.gradmon-new-00000000", "{");
  }
  SECTION("killed after the exchange") {
    save_in_place(path, expected = with_off(text_of(1)));
    save_in_place(side, text_of(1));
    set_time(side, 0x1234567890abcdef);
  }
  SECTION("killed with the same text saved again in the side file") {
    save_in_place(path, with_off(text_of(1)));
    save_in_place(side, expected = text_of(1));
  }
  SECTION("killed while it restored two saves of the user one after the other") {
    save_in_place(path, text_of(2));
    save_in_place(side, expected = text_of(3));
    set_time(path, 0x1234567890abcdef);
  }
  SECTION("killed with a save of the user in the side file") {
    save_in_place(path, with_off(text_of(1)));
    save_in_place(side, expected = text_of(2));
  }
  recover(path, std::chrono::hours(1));
  CHECK(directory.names().size() == 2);
  recover(path, std::chrono::seconds(-1));
  CHECK(read_text(path) == expected);
  CHECK(directory.names() == std::set<std::string>{"c.json"});
}

TEST_CASE("a save that is older than the user's present one stays in its side file and is named") {
  ScratchDirectory directory;
  const auto path = directory / "c.json";
  const auto side = side_of(directory);
  save_in_place(side, text_of(2));
  const timespec old[2] = {{1'300'000'000, 0}, {1'300'000'000, 0}};
  REQUIRE(::utimensat(AT_FDCWD, side.c_str(), old, 0) == 0);
  save_in_place(path, text_of(3));
  Recovery now = of_age(std::chrono::seconds(-1));
  CHECK(recover_side_files(path, now) == LeftOvers::none);
  CHECK(now.superseded == std::set<fs::path>{side});
  CHECK(read_text(path) == text_of(3));
  CHECK(read_text(side) == text_of(2));
}

TEST_CASE("a save into a side file is newer than an edit of this process that is based on an older save") {
  ScratchDirectory directory;
  const auto path = directory / "c.json";
  const auto side = side_of(directory);
  save_in_place(side, text_of(2));
  const auto saved_ns = read_now(side).signature.mtime_ns;
  save_in_place(path, text_of(7));
  Recovery now = of_age(std::chrono::seconds(-1));
  now.ours = read_now(path).signature;
  SECTION("of an older save") {
    now.user_save_ns = saved_ns - 1;
    CHECK(recover_side_files(path, now) == LeftOvers::none);
    CHECK(read_text(path) == text_of(2));
    CHECK(directory.names() == std::set<std::string>{"c.json"});
  }
  SECTION("of a newer save") {
    now.user_save_ns = saved_ns + 1;
    CHECK(recover_side_files(path, now) == LeftOvers::none);
    CHECK(read_text(path) == text_of(7));
    CHECK(now.superseded == std::set<fs::path>{side});
  }
}

// As a killed process leaves it: the old and the new content.
void record_write(const fs::path& path, const fs::path& directory, const std::string& before,
                  const std::string& after) {
  const auto name = "." + path.filename().string() + ".gradmon-write-" +
                    sha256_hex(path.string()).substr(0, 12) + "-00000000";
  save_in_place(directory / name, std::to_string(before.size()) + "\n" + before + after);
  fs::permissions(directory / name, fs::perms(0600));
}

TEST_CASE("a write in place that was interrupted at any byte is completed") {
  const std::string longer = text_of(1) + std::string(20, ' ') + "\n";
  for (const auto& [before, after] :
       {std::pair(text_of(1), with_off(text_of(1))), std::pair(with_off(text_of(1)), text_of(1)),
        std::pair(text_of(12), text_of(34)), std::pair(longer, text_of(222))}) {
    for (std::size_t written = 0; written <= after.size(); ++written) {
      ScratchDirectory directory;
      const auto path = directory / "c.json";
      const auto spare = directory / "spare";
      fs::create_directory(spare);
      std::string text = after.substr(0, written);
      if (text.size() < before.size()) text += before.substr(text.size());
      save_in_place(path, text);
      record_write(path, written % 2 == 0 ? directory.path() : spare, before, after);
      const auto inode = read_now(path).signature.inode;
      Recovery now = of_age(std::chrono::hours(1));
      now.spare = spare;
      CAPTURE(text, written);
      CHECK(recover_side_files(path, now) == LeftOvers::none);
      CHECK(read_text(path) == (text == before ? before : after));
      CHECK(read_now(path).signature.inode == inode);
      CHECK(directory.names() == std::set<std::string>{"c.json", "spare"});
      CHECK(fs::is_empty(spare));
    }
  }
}

TEST_CASE("a record of a write in place changes nothing in a file that has been saved since") {
  for (const std::string& saved : {text_of(2), std::string("{}"), std::string(), text_of(1) + "\n",
                                   with_off(text_of(1)) + "\n", text_of(1).substr(0, 20)}) {
    ScratchDirectory directory;
    const auto path = directory / "c.json";
    save_in_place(path, saved);
    const auto before = read_now(path).content.identity;
    record_write(path, directory.path(), text_of(1), with_off(text_of(1)));
    CHECK(recover(path, std::chrono::hours(1)) == LeftOvers::none);
    CHECK(read_now(path).content.identity == before);
    CHECK(directory.names() == std::set<std::string>{"c.json"});
  }
}

TEST_CASE("a record that others could have written, or whose writer lives, completes nothing") {
  ScratchDirectory directory;
  const auto path = directory / "c.json";
  const auto torn = text_of(1).substr(0, 27) + "fals" + text_of(1).substr(31);
  const auto planned = text_of(1).substr(0, 27) + "false" + text_of(1).substr(32);
  REQUIRE(torn.size() == text_of(1).size());
  save_in_place(path, torn);
  record_write(path, directory.path(), text_of(1), planned);
  const auto record = directory / *std::find_if(directory.names().begin(), directory.names().end(),
                                                [](const auto& name) { return name != "c.json"; });
  SECTION("another may write to it") { fs::permissions(record, fs::perms(0620)); }
  SECTION("it is a link") {
    fs::rename(record, directory / "elsewhere");
    fs::create_symlink("elsewhere", record);
  }
  const int fd = ::open(record.c_str(), O_RDONLY | O_CLOEXEC);
  SECTION("its writer holds the lock") {
    REQUIRE(::flock(fd, LOCK_EX) == 0);
    CHECK(recover(path, std::chrono::seconds(-1)) == LeftOvers::some);
  }
  recover(path, std::chrono::seconds(-1));
  CHECK(read_text(path) == torn);
  ::close(fd);
}

}  // namespace
}  // namespace gradmon
