// SPDX-License-Identifier: Apache-2.0
// Which files ConfigFile reports, and when. The test moves the clock.
#include "control/config/config_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <memory>

#include "control/config/config_parser.h"
#include "control/host/frame_stream.h"
#include "control/log.h"
#include "tests/control/config/scratch_directory.h"
#include "tests/support/catch.h"
#include "tests/support/resource_limit.h"

namespace gradmon {
namespace {

using namespace testing;
using std::chrono::milliseconds;

using Reports = std::vector<std::string>;

// All reports within `duration` of fake time; polls as often as next_poll() says.
Reports reports_within(ConfigFile& file, FakeClock& clock, milliseconds duration) {
  Reports all;
  const auto end = clock.now + duration;
  for (;;) {
    if (const auto report = file.poll())
      all.push_back(*report ? report->value().text : "(problem) " + report->error());
    const auto pause = std::max(file.next_poll(), milliseconds(1));
    if (clock.now + pause > end) break;
    clock.now += pause;
  }
  clock.now = end;
  return all;
}

// A file "{}" whose first report has come.
struct WatchedFile {
  ScratchDirectory directory;
  const fs::path path = directory / "c";
  FakeClock clock;
  std::unique_ptr<ConfigFile> file;

  WatchedFile() {
    save_in_place(path, "{}");
    file = std::make_unique<ConfigFile>(path, clock.clock());
    REQUIRE(reports_within(milliseconds(3000)) == Reports{"{}"});
  }
  Reports reports_within(milliseconds duration) { return gradmon::reports_within(*file, clock, duration); }
};

}  // namespace

TEST_CASE("a file that was saved long ago is reported by the first poll") {
  ScratchDirectory directory;
  save_in_place(directory / "c", "{}");
  make_old(directory / "c");
  FakeClock clock;
  ConfigFile file(directory / "c", clock.clock());
  const auto report = file.poll();
  REQUIRE(report.has_value());
  REQUIRE(report->has_value());
  CHECK((*report)->text == "{}");
  CHECK((*report)->identity.size == 2);
  CHECK((*report)->identity.sha256 == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a");
  CHECK_FALSE(file.poll().has_value());
}

TEST_CASE("a content is reported with its config, and is parsed once however often it is saved") {
  ScratchDirectory directory;
  const auto path = directory / "c";
  ConfigFile file(path);
  const auto parsed_of = [&](const std::string& text) {
    save_by_rename(path, text);
    const auto report = wait_for_report(file);
    REQUIRE((report && *report));
    CHECK((*report)->text == text);
    REQUIRE((*report)->parsed);
    return (*report)->parsed;
  };
  const auto first = parsed_of("{\"eps\": 2}");
  REQUIRE(*first);
  CHECK((*first)->config.eps == 2);
  CHECK(parsed_of("{\"eps\": 2}") == first);
  const auto edited = file.edit({{"eps", "3"}}, std::nullopt);
  REQUIRE(edited);
  CHECK((*edited->parsed)->config.eps == 3);
  CHECK(parsed_of(edited->text) == edited->parsed);
  const auto broken = parsed_of("{\"eps\": 0}");
  REQUIRE_FALSE(*broken);
  CHECK(to_string(broken->error()) == path.string() + ":1:9: /eps: found 0, expected a number > 0");
}

TEST_CASE("a file missing at the start is reported at once and read when it appears") {
  ScratchDirectory directory;
  FakeClock clock;
  ConfigFile file(directory / "c", clock.clock());
  CHECK(reports_within(file, clock, milliseconds(5000)) == Reports{"(problem) there is no such file"});
  save_in_place(directory / "c", "{}");
  CHECK(reports_within(file, clock, milliseconds(500)) == Reports{"{}"});
}

TEST_CASE("a file deleted later is reported as missing once and the next save is read") {
  WatchedFile c;
  fs::rename(c.path, c.directory / "d");
  CHECK(c.reports_within(milliseconds(900)).empty());
  CHECK(c.reports_within(milliseconds(60'000)) == Reports{"(problem) there is no such file"});
  fs::rename(c.directory / "d", c.path);
  CHECK(c.reports_within(milliseconds(5000)) == Reports{"{}"});
}

TEST_CASE("an empty or broken file is reported once after a second") {
  for (const std::string& broken :
       {std::string(), std::string("  \n"), std::string("\0\0\0", 3), std::string("{\"a\""),
        std::string("[]"), std::string("\xFF\xFE{\0}\0", 6)}) {
    WatchedFile c;
    save_in_place(c.path, broken);
    CHECK(c.reports_within(milliseconds(900)).empty());
    CHECK(c.reports_within(milliseconds(20'000)) == Reports{broken});
    save_by_rename(c.path, broken + " ");
    CHECK(c.reports_within(milliseconds(900)).empty());
    save_by_rename(c.path, "{ }");
    CHECK(c.reports_within(milliseconds(1)) == Reports{"{ }"});
  }
}

TEST_CASE("a rename is reported at once and writing in place after a pause") {
  WatchedFile c;
  save_by_rename(c.path, "{ }");
  const auto report = c.file->poll();
  REQUIRE(report.has_value());
  c.clock.now += milliseconds(1000);
  save_in_place(c.path, "{  }");
  CHECK_FALSE(c.file->poll().has_value());
  CHECK(c.reports_within(milliseconds(99)).empty());
  CHECK(c.reports_within(milliseconds(10)) == Reports{"{  }"});
}

TEST_CASE("a file that its writer has not closed is not reported yet") {
  WatchedFile c;
  std::ofstream writer(c.path, std::ios::trunc);
  writer << "{\"a\": 1}" << std::flush;
  CHECK(c.reports_within(milliseconds(1000)).empty());
  writer << "   " << std::flush;
  CHECK(c.reports_within(milliseconds(1900)).empty());
  writer.close();
  CHECK(c.reports_within(milliseconds(200)) == Reports{"{\"a\": 1}   "});
}

TEST_CASE("the same content with another time stamp is a save") {
  WatchedFile c;
  make_old(c.path);
  CHECK(c.reports_within(milliseconds(3000)) == Reports{"{}"});
  fs::last_write_time(c.path, fs::file_time_type::clock::now() + std::chrono::hours(1000));
  CHECK(c.reports_within(milliseconds(3000)) == Reports{"{}"});
  fs::permissions(c.path, fs::perms(0600));
  CHECK(c.reports_within(milliseconds(30'000)).empty());
}

TEST_CASE("a file that is not regular or too large is refused without blocking") {
  ScratchDirectory directory;
  const auto path = directory / "c";
  std::string expected = "(problem) it is not a regular file";
  SECTION("fifo") { REQUIRE(::mkfifo(path.c_str(), 0600) == 0); }
  SECTION("directory") { fs::create_directory(path); }
  SECTION("device") { fs::create_symlink("/dev/zero", path); }
  SECTION("socket") { ::close(bind_unix(path).value()); }
  SECTION("dangling link") {
    fs::create_symlink("nowhere", path);
    expected = "(problem) there is no such file";
  }
  SECTION("link to itself") {
    fs::create_symlink("c", path);
    expected = "(problem) it cannot be read: Too many levels of symbolic links";
  }
  SECTION("over 1 MiB") {
    save_in_place(path, std::string((std::size_t{1} << 20U) + 1, ' '));
    expected = "(problem) it is larger than 1 MiB";
  }
  SECTION("a sparse file of 1 GiB") {
    save_in_place(path, "");
    fs::resize_file(path, std::uintmax_t{1} << 30U);
    expected = "(problem) it is larger than 1 MiB";
  }
  FakeClock clock;
  ConfigFile file(path, clock.clock());
  CHECK(reports_within(file, clock, milliseconds(5000)) == Reports{expected});
  const auto edited = file.edit({{"a", "1"}}, std::nullopt);
  REQUIRE_FALSE(edited.has_value());
  CHECK(edited.error().kind == EditError::Kind::unreadable);
  fs::remove_all(path);
  save_in_place(path, "{}");
  CHECK(reports_within(file, clock, milliseconds(3000)) == Reports{"{}"});
}

TEST_CASE("without inotify the file is polled and saves are still reported") {
  ScratchDirectory directory;
  save_in_place(directory / "c", "{}");
  FakeClock clock;
  // UBSan needs a descriptor when it first sees a class: it must see the logger's before the limit.
  log_info("a process without descriptors follows");
  auto none = std::make_unique<const DescriptorLimit>(rlim_t{0});
  ConfigFile file(directory / "c", clock.clock());
  none.reset();
  CHECK(file.event_fd() == -1);
  CHECK(reports_within(file, clock, milliseconds(3000)) == Reports{"{}"});
  save_in_place(directory / "c", "{ }");
  CHECK(reports_within(file, clock, milliseconds(3000)) == Reports{"{ }"});
  save_by_rename(directory / "c", "{  }");
  CHECK(reports_within(file, clock, milliseconds(3000)) == Reports{"{  }"});
}

TEST_CASE("a replaced directory is watched again") {
  ScratchDirectory directory;
  fs::create_directory(directory / "conf");
  save_in_place(directory / "conf/c", "{}");
  FakeClock clock;
  ConfigFile file(directory / "conf/c", clock.clock());
  REQUIRE(reports_within(file, clock, milliseconds(3000)) == Reports{"{}"});
  fs::create_directory(directory / "next");
  save_in_place(directory / "next/c", "{ }");
  fs::rename(directory / "conf", directory / "old");
  fs::rename(directory / "next", directory / "conf");
  CHECK(reports_within(file, clock, milliseconds(3000)) == Reports{"{ }"});
  save_by_rename(directory / "conf/c", "{  }");
  CHECK(reports_within(file, clock, milliseconds(300)) == Reports{"{  }"});
}

}  // namespace gradmon
