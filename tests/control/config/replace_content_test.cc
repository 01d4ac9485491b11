// SPDX-License-Identifier: Apache-2.0
// One replacement of a file, and the recovery of side files.
#include "control/config/replace_content.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "control/debian_version.h"
#include "tests/control/config/scratch_directory.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using namespace testing;

const std::string kBaseTime = "1234567890abcdef";

// The side file of an edit that set `dynamic_on` of text_of(1) to false.
fs::path side_of(const ScratchDirectory& directory) {
  return directory / (".c.json.gradmon-prev-" + sha256_of(text_of(1)).substr(0, 12) + "-" +
                      sha256_of(with_off(text_of(1))).substr(0, 12) + "-" + kBaseTime + "-00000000");
}

}  // namespace

TEST_CASE("the fallback without an exchange replaces the file only if it is unchanged", "[configfile]") {
  ScratchDirectory directory;
  const auto path = directory / "c.json";
  save_in_place(path, text_of(1));
  const auto base = read_now(path);
  std::vector<DisplacedFile> displaced;
  const auto done = replace_content(path, base, text_of(2), displaced, Replacement::rename);
  REQUIRE(done.has_value());
  CHECK(read_text(path) == text_of(2));
  CHECK(done->content.identity == read_now(path).content.identity);
  const auto again = replace_content(path, base, text_of(3), displaced, Replacement::rename);
  REQUIRE_FALSE(again.has_value());
  CHECK(again.error().kind == ExchangeError::Kind::changed);
  CHECK(read_text(path) == text_of(2));
  CHECK(directory.names().size() == 1);
}

TEST_CASE("a displaced file of another user counts as open", "[configfile]") {
  if (::geteuid() != 0) {
    WARN("skipped: only root can be another user");
    return;
  }
  ScratchDirectory directory;
  REQUIRE(::chmod(directory.path().c_str(), 0755) == 0);
  const DisplacedFile file{directory / "c.json", directory / "side", {}};
  save_in_place(file.side, text_of(1));
  CHECK_FALSE(is_open_elsewhere(file));
  REQUIRE(::seteuid(1234) == 0);
  const bool may_be_open = is_open_elsewhere(file);
  REQUIRE(::seteuid(0) == 0);
  CHECK(may_be_open);
}

TEST_CASE("a displaced file on which no lease can be taken counts as open", "[configfile]") {
  ScratchDirectory directory;
  const DisplacedFile file{directory / "c.json", directory / "side", {}};
  CHECK_FALSE(is_open_elsewhere(file));
  REQUIRE(::mkfifo(file.side.c_str(), 0600) == 0);  // a lease fails with EINVAL, as on NFS
  CHECK(is_open_elsewhere(file));
}

TEST_CASE("a displaced save is kept while the target cannot be read and is restored later", "[configfile]") {
  ScratchDirectory directory;
  const auto path = directory / "c.json";
  const auto side = side_of(directory);
  const auto save = text_of(2);
  save_in_place(side, save);
  SECTION("the target is missing") {}
  SECTION("the target is a directory") { fs::create_directory(path); }
  CHECK(recover_side_files(path, std::chrono::seconds(-1)) == LeftOvers::some);
  CHECK(read_text(side) == save);
  fs::remove(path);
  save_in_place(path, with_off(text_of(1)));
  CHECK(recover_side_files(path, std::chrono::seconds(-1)) == LeftOvers::none);
  CHECK(read_text(path) == save);
  CHECK(directory.names() == std::set<std::string>{"c.json"});
}

TEST_CASE("a save displaced by a killed process is restored and its leftovers are removed", "[configfile]") {
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
  SECTION("the user has saved again since") {
    save_in_place(path, expected = text_of(3));
    save_in_place(side, text_of(2));
    set_time(side, 0x1234567890abcdef);
  }
  recover_side_files(path, std::chrono::hours(1));
  CHECK(directory.names().size() == 2);
  recover_side_files(path, std::chrono::seconds(-1));
  CHECK(read_text(path) == expected);
  CHECK(directory.names() == std::set<std::string>{"c.json"});
}

}  // namespace gradmon
