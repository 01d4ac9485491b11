// SPDX-License-Identifier: Apache-2.0
#include "control/host/bounded_log.h"

#include <unistd.h>

#include <sstream>
#include <thread>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/is_root.h"
#include "tests/support/resource_limit.h"
#include "tests/support/temporary_directory.h"

using namespace gradmon;

namespace {

std::vector<std::string> lines_of(const fs::path& path) {
  std::istringstream text(read_text(path));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

}  // namespace

TEST_CASE("lines are appended to a file of mode 0600 which the next log continues") {
  const TemporaryDirectory directory;
  const fs::path path = directory / "hub.log";
  BoundedLog(path).write("one");
  BoundedLog log(path);
  log.write("two");
  log.write("");
  CHECK(read_text(path) == "one\ntwo\n\n");
  CHECK(mode_of(path) == 0600);
}

TEST_CASE("a line stays one line and control characters are escaped") {
  const TemporaryDirectory directory;
  BoundedLog log(directory / "hub.log");
  log.write("a\nb\tc\x1b[31m\x7f größer");
  log.write(std::string(10'000, 'x'));
  log.write(std::string(10'000, '\0'));
  const auto lines = lines_of(directory / "hub.log");
  REQUIRE(lines.size() == 3);
  CHECK(lines[0] == "a\\x0ab\\x09c\\x1b[31m\\x7f größer");
  CHECK(lines[1] == std::string(4'096, 'x'));
  CHECK(lines[2].size() == 4'096);
}

TEST_CASE("the file is bounded and the previous file is kept and no line between them is lost") {
  const TemporaryDirectory directory;
  const fs::path path = directory / "hub.log";
  BoundedLog log(path, 1'000);
  for (int i = 0; i < 1'000; ++i) {
    log.write(std::to_string(i));
    REQUIRE(fs::file_size(path) <= 1'000);
  }
  CHECK(fs::file_size(path.string() + ".1") <= 1'000);
  auto lines = lines_of(path.string() + ".1");
  for (std::string& line : lines_of(path)) lines.push_back(std::move(line));
  CHECK(lines.size() > 250);
  for (std::size_t i = 0; i < lines.size(); ++i) CHECK(lines[i] == std::to_string(1'000 - lines.size() + i));
  std::size_t files = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(directory.path())) ++files;
  CHECK(files == 2);
}

TEST_CASE("a removed log file is created again") {
  const TemporaryDirectory directory;
  BoundedLog log(directory / "hub.log");
  log.write("one");
  fs::remove(directory / "hub.log");
  log.write("two");
  CHECK(read_text(directory / "hub.log") == "two\n");
}

TEST_CASE("lines that cannot be written are dropped and the log states their number later") {
  const TemporaryDirectory directory;
  const fs::path folder = directory / "job";
  BoundedLog log(folder / "hub.log");
  log.write("lost");
  log.write("lost too");
  fs::create_directory(folder);
  log.write("one");
  log.write("two");
  CHECK(read_text(folder / "hub.log") == "(lines dropped because they could not be written: 2)\none\ntwo\n");
}

TEST_CASE("a file that is not a regular file of this user is not written and does not block") {
  const TemporaryDirectory directory;
  const fs::path path = directory / "hub.log";
  SECTION("a pipe that nobody reads") { REQUIRE(mkfifo(path.c_str(), 0600) == 0); }
  SECTION("a link") {
    write_text(directory / "elsewhere", "");
    fs::create_symlink(directory / "elsewhere", path);
  }
  SECTION("a directory") { fs::create_directory(path); }
  SECTION("another user's") {
    if (!is_root("make another user's file")) return;
    write_text(path, "");
    REQUIRE(chown(path.c_str(), 12'345, 0) == 0);
  }
  BoundedLog log(path);
  log.write("x");
  CHECK((fs::is_directory(path) || !fs::is_regular_file(path) || fs::file_size(path) == 0));
}

TEST_CASE("a full disk leaves only whole lines") {
  const TemporaryDirectory directory;
  const fs::path path = directory / "hub.log";
  BoundedLog log(path);
  log.write("12345");
  {
    const FileSizeLimit full(10);
    log.write("67890");
  }
  CHECK(read_text(path) == "12345\n");
  log.write("again");
  CHECK(lines_of(path) ==
        std::vector<std::string>{"12345", "(lines dropped because they could not be written: 1)", "again"});
}

TEST_CASE("a log that cannot be renamed stays bounded") {
  const TemporaryDirectory directory;
  const fs::path path = directory / "hub.log";
  fs::create_directories((directory / "hub.log.1") / "in the way");
  BoundedLog log(path, 100);
  for (int i = 0; i < 100; ++i) log.write("a line");
  CHECK(fs::file_size(path) <= 100);
  fs::remove_all(directory / "hub.log.1");
  log.write("last");
  const auto lines = lines_of(path);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0] == "(lines dropped because they could not be written: 86)");
  CHECK(lines[1] == "last");
}

TEST_CASE("the lines of several threads do not mix") {
  const TemporaryDirectory directory;
  BoundedLog log(directory / "hub.log");
  std::vector<std::thread> threads;
  for (char c = 'a'; c < 'e'; ++c) {
    threads.emplace_back([&log, c] {
      for (int i = 0; i < 500; ++i) log.write(std::string(50, c));
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto lines = lines_of(directory / "hub.log");
  CHECK(lines.size() == 2'000);
  for (const std::string& line : lines) CHECK(line == std::string(50, line[0]));
}
