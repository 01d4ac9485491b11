// SPDX-License-Identifier: Apache-2.0
// What ConfigFile makes of odd files, and when: on a clock moved by hand.
#include "control/config/config_file.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "control/debian_version.h"
#include "control/log.h"
#include "tests/control/config/scratch_directory.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using namespace testing;
using std::chrono::milliseconds;

struct FakeClock {
  std::chrono::steady_clock::time_point now{std::chrono::hours(1)};
  ConfigFile::Clock clock() {
    return [this] { return now; };
  }
};

// What the file says within so much fake time, polled as it asks for.
std::vector<std::string> said_within(ConfigFile& file, FakeClock& clock, milliseconds duration) {
  std::vector<std::string> all;
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

using HubLogLine = std::vector<std::string>;

}  // namespace

TEST_CASE("a file of long ago is reported by the first poll", "[configfile]") {
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

TEST_CASE("a file that is missing at the start is told of at once and taken when it comes", "[configfile]") {
  ScratchDirectory directory;
  FakeClock clock;
  ConfigFile file(directory / "c", clock.clock());
  CHECK(said_within(file, clock, milliseconds(5000)) == HubLogLine{"(problem) there is no such file"});
  save_in_place(directory / "c", "{}");
  CHECK(said_within(file, clock, milliseconds(500)) == HubLogLine{"{}"});
}

TEST_CASE("a file deleted later is one problem and the next save is taken", "[configfile]") {
  ScratchDirectory directory;
  save_in_place(directory / "c", "{}");
  FakeClock clock;
  ConfigFile file(directory / "c", clock.clock());
  REQUIRE(said_within(file, clock, milliseconds(3000)) == HubLogLine{"{}"});
  fs::rename(directory / "c", directory / "d");
  CHECK(said_within(file, clock, milliseconds(900)).empty());
  CHECK(said_within(file, clock, milliseconds(60'000)) == HubLogLine{"(problem) there is no such file"});
  fs::rename(directory / "d", directory / "c");
  CHECK(said_within(file, clock, milliseconds(5000)) == HubLogLine{"{}"});
}

TEST_CASE("what is empty or broken is quiet for a second and then reported once", "[configfile]") {
  for (const std::string& broken :
       {std::string(), std::string("  \n"), std::string("\0\0\0", 3), std::string("{\"a\""),
        std::string("[]"), std::string("\xFF\xFE{\0}\0", 6)}) {
    ScratchDirectory directory;
    save_in_place(directory / "c", "{}");
    FakeClock clock;
    ConfigFile file(directory / "c", clock.clock());
    REQUIRE(said_within(file, clock, milliseconds(3000)) == HubLogLine{"{}"});
    save_in_place(directory / "c", broken);
    CHECK(said_within(file, clock, milliseconds(900)).empty());
    CHECK(said_within(file, clock, milliseconds(20'000)) == HubLogLine{broken});
    save_by_rename(directory / "c", broken + " ");
    CHECK(said_within(file, clock, milliseconds(900)).empty());
    save_by_rename(directory / "c", "{ }");
    CHECK(said_within(file, clock, milliseconds(1)) == HubLogLine{"{ }"});
  }
}

TEST_CASE("a rename is reported at once and writing in place after a pause", "[configfile]") {
  ScratchDirectory directory;
  save_in_place(directory / "c", "{}");
  FakeClock clock;
  ConfigFile file(directory / "c", clock.clock());
  REQUIRE(said_within(file, clock, milliseconds(3000)) == HubLogLine{"{}"});
  save_by_rename(directory / "c", "{ }");
  const auto report = file.poll();
  REQUIRE(report.has_value());
  clock.now += milliseconds(1000);
  save_in_place(directory / "c", "{  }");
  CHECK_FALSE(file.poll().has_value());
  CHECK(said_within(file, clock, milliseconds(99)).empty());
  CHECK(said_within(file, clock, milliseconds(10)) == HubLogLine{"{  }"});
}

TEST_CASE("a writer that has not closed is waited for", "[configfile]") {
  ScratchDirectory directory;
  save_in_place(directory / "c", "{}");
  FakeClock clock;
  ConfigFile file(directory / "c", clock.clock());
  REQUIRE(said_within(file, clock, milliseconds(3000)) == HubLogLine{"{}"});
  std::ofstream writer(directory / "c", std::ios::trunc);
  writer << "{\"a\": 1}" << std::flush;
  CHECK(said_within(file, clock, milliseconds(1000)).empty());
  writer << "   " << std::flush;
  CHECK(said_within(file, clock, milliseconds(1900)).empty());
  writer.close();
  CHECK(said_within(file, clock, milliseconds(200)) == HubLogLine{"{\"a\": 1}   "});
}

TEST_CASE("the same content with another time stamp is a save", "[configfile]") {
  ScratchDirectory directory;
  save_in_place(directory / "c", "{}");
  FakeClock clock;
  ConfigFile file(directory / "c", clock.clock());
  REQUIRE(said_within(file, clock, milliseconds(3000)) == HubLogLine{"{}"});
  make_old(directory / "c");
  CHECK(said_within(file, clock, milliseconds(3000)) == HubLogLine{"{}"});
  fs::last_write_time(directory / "c", fs::file_time_type::clock::now() + std::chrono::hours(1000));
  CHECK(said_within(file, clock, milliseconds(3000)) == HubLogLine{"{}"});
  fs::permissions(directory / "c", fs::perms(0600));
  CHECK(said_within(file, clock, milliseconds(30'000)).empty());
}

TEST_CASE("what is not a regular file is refused without blocking", "[configfile]") {
  ScratchDirectory directory;
  const auto path = directory / "c";
  std::string expected = "(problem) it is not a regular file";
  SECTION("fifo") { REQUIRE(::mkfifo(path.c_str(), 0600) == 0); }
  SECTION("directory") { fs::create_directory(path); }
  SECTION("device") { fs::create_symlink("/dev/zero", path); }
  SECTION("socket") {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.string().copy(address.sun_path, sizeof address.sun_path - 1);
    REQUIRE(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    ::close(fd);
  }
  SECTION("dangling link") {
    fs::create_symlink("nowhere", path);
    expected = "(problem) there is no such file";
  }
  SECTION("link in a circle") {
    fs::create_symlink("c", path);
    expected = "(problem) it cannot be read: Too many levels of symbolic links";
  }
  SECTION("over a mebibyte") {
    save_in_place(path, std::string((std::size_t{1} << 20U) + 1, ' '));
    expected = "(problem) it is larger than 1 MiB";
  }
  SECTION("a gibibyte of holes") {
    save_in_place(path, "");
    fs::resize_file(path, std::uintmax_t{1} << 30U);
    expected = "(problem) it is larger than 1 MiB";
  }
  FakeClock clock;
  ConfigFile file(path, clock.clock());
  CHECK(said_within(file, clock, milliseconds(5000)) == HubLogLine{expected});
  const auto edited = file.edit({{"a", "1"}}, std::nullopt);
  REQUIRE_FALSE(edited.has_value());
  CHECK(edited.error().kind == EditError::Kind::unreadable);
  fs::remove_all(path);
  save_in_place(path, "{}");
  CHECK(said_within(file, clock, milliseconds(3000)) == HubLogLine{"{}"});
}

TEST_CASE("without inotify the file is polled and seen all the same", "[configfile]") {
  ScratchDirectory directory;
  save_in_place(directory / "c", "{}");
  FakeClock clock;
  // UBSan, too, wants descriptors, for each class that it meets for the first time: the logger's.
  log_info("a process without descriptors follows");
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit none{0, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  ConfigFile file(directory / "c", clock.clock());
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(file.event_fd() == -1);
  CHECK(said_within(file, clock, milliseconds(3000)) == HubLogLine{"{}"});
  save_in_place(directory / "c", "{ }");
  CHECK(said_within(file, clock, milliseconds(3000)) == HubLogLine{"{ }"});
  save_by_rename(directory / "c", "{  }");
  CHECK(said_within(file, clock, milliseconds(3000)) == HubLogLine{"{  }"});
}

TEST_CASE("a directory that is replaced is watched again", "[configfile]") {
  ScratchDirectory directory;
  fs::create_directory(directory / "conf");
  save_in_place(directory / "conf/c", "{}");
  FakeClock clock;
  ConfigFile file(directory / "conf/c", clock.clock());
  REQUIRE(said_within(file, clock, milliseconds(3000)) == HubLogLine{"{}"});
  fs::create_directory(directory / "next");
  save_in_place(directory / "next/c", "{ }");
  fs::rename(directory / "conf", directory / "old");
  fs::rename(directory / "next", directory / "conf");
  CHECK(said_within(file, clock, milliseconds(3000)) == HubLogLine{"{ }"});
  save_by_rename(directory / "conf/c", "{  }");
  CHECK(said_within(file, clock, milliseconds(300)) == HubLogLine{"{  }"});
}

}  // namespace gradmon
