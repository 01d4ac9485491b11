// SPDX-License-Identifier: Apache-2.0
#include "writers/sinks/csv/csv_file.h"

#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "control/debian_version.h"
#include "control/files/make_directories.h"
#include "tests/support/temporary_directory.h"
#include "tests/writers/file_size_limit.h"
#include "tests/writers/files_in.h"
#include "tests/writers/small_disk.h"
#include GRADMON_CATCH_HEADER

using namespace gradmon;
namespace fs = std::filesystem;

namespace {

constexpr const char* kHeader = "name,step\n";

bool writes(CsvFile& file, const fs::path& path, const std::string& rows) {
  return file.append(path, kHeader, rows) == CsvFile::Outcome::written;
}

unsigned mode_of(const fs::path& path) {
  struct stat seen {};
  return ::stat(path.c_str(), &seen) == 0 ? seen.st_mode & 07777U : 0;
}

}  // namespace

TEST_CASE("a file has one header and the rows in the order of the calls") {
  const TemporaryDirectory scratch;
  CsvFile file;
  CHECK(writes(file, scratch.path() / "a.csv", "x,1\n"));
  CHECK(writes(file, scratch.path() / "a.csv", "x,2\ny,2\n"));
  CsvFile another;
  CHECK(writes(another, scratch.path() / "a.csv", "x,3\n"));
  CHECK(read_text(scratch.path() / "a.csv") == "name,step\nx,1\nx,2\ny,2\nx,3\n");
  CHECK(files_in(scratch.path()) == std::set<std::string>{"a.csv"});
}

TEST_CASE("a new file gets its name only after its rows are in it") {
  const TemporaryDirectory scratch;
  const int watch = ::inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  REQUIRE(::inotify_add_watch(watch, scratch.path().c_str(), IN_CREATE | IN_MODIFY | IN_MOVED_TO) >= 0);
  CsvFile file;
  CHECK(writes(file, scratch.path() / "a.csv", "x,1\n"));
  alignas(inotify_event) char events[4096];
  const ssize_t size = ::read(watch, events, sizeof events);
  ::close(watch);
  std::string under_its_name;
  for (ssize_t at = 0; at < size;) {
    inotify_event event;
    std::memcpy(&event, events + at, sizeof event);
    const bool named = std::string(events + at + sizeof event) == "a.csv";
    if (named) under_its_name += event.mask & IN_MOVED_TO ? "moved " : "changed ";
    at += static_cast<ssize_t>(sizeof event + event.len);
  }
  CHECK(under_its_name == "moved ");
}

TEST_CASE("a partial last row is cut off before rows are added") {
  const TemporaryDirectory scratch;
  const auto path = scratch.path() / "a.csv";
  for (const char* const left : {"name,step\nx,1\ny", "name,step\nx,1\n\"a\nb", "name,step\nx,1\n\"a\n"}) {
    write_text(path, left);
    CsvFile file;
    CHECK(writes(file, path, "z,2\n"));
    CHECK(read_text(path) == "name,step\nx,1\nz,2\n");
  }
}

TEST_CASE("a file that has replaced ours is checked again before rows are added") {
  const TemporaryDirectory scratch;
  const auto path = scratch.path() / "a.csv";
  CsvFile file;
  REQUIRE(writes(file, path, "x,1\ny,1\n"));
  write_text(scratch.path() / "b.csv", "name,step\nx,1\ny,1,");
  fs::rename(scratch.path() / "b.csv", path);
  CHECK(writes(file, path, "z,2\n"));
  CHECK(read_text(path) == "name,step\nx,1\nz,2\n");
}

TEST_CASE("a quoted line end is not the end of a row") {
  const TemporaryDirectory scratch;
  const auto path = scratch.path() / "a.csv";
  write_text(path, "name,step\n\"a\nb\",1\n");
  CsvFile file;
  CHECK(writes(file, path, "z,2\n"));
  CHECK(read_text(path) == "name,step\n\"a\nb\",1\nz,2\n");
}

TEST_CASE("a file without a whole header is written anew") {
  const TemporaryDirectory scratch;
  const auto path = scratch.path() / "a.csv";
  for (const char* const left : {"", "name,st"}) {
    write_text(path, left);
    CsvFile file;
    CHECK(writes(file, path, "x,1\n"));
    CHECK(read_text(path) == "name,step\nx,1\n");
  }
}

TEST_CASE("a file with other columns is left as it is") {
  const TemporaryDirectory scratch;
  const auto path = scratch.path() / "a.csv";
  write_text(path, "name,step,norm\nx,1");
  CsvFile file;
  CHECK(file.append(path, kHeader, "x,2\n") == CsvFile::Outcome::other_header);
  CHECK(read_text(path) == "name,step,norm\nx,1");
}

TEST_CASE("a large file without a line end is left as it is") {
  const TemporaryDirectory scratch;
  const auto path = scratch.path() / "a.csv";
  write_text(path, "name");
  constexpr std::uintmax_t kLarge = std::uintmax_t{1} << 30;  // sparse
  fs::resize_file(path, kLarge);
  CsvFile file;
  CHECK(file.append(path, kHeader, "x,1\n") == CsvFile::Outcome::other_header);
  CHECK(fs::file_size(path) == kLarge);
}

TEST_CASE("new files have mode 0640 and new directories 0750") {
  const TemporaryDirectory scratch;
  const mode_t before = ::umask(022);
  CsvFile file;
  const auto path = scratch.path() / "new" / "deep" / "a.csv";
  CHECK(writes(file, path, "x,1\n"));
  ::umask(before);
  CHECK(mode_of(path) == 0640);
  CHECK(mode_of(path.parent_path()) == 0750);
  CHECK(mode_of(path.parent_path().parent_path()) == 0750);
}

TEST_CASE("a removed directory is created again") {
  const TemporaryDirectory scratch;
  CsvFile file;
  const auto path = scratch.path() / "run" / "a.csv";
  CHECK(writes(file, path, "x,1\n"));
  fs::remove_all(path.parent_path());
  CHECK(writes(file, path, "x,2\n"));
  CHECK(read_text(path) == "name,step\nx,2\n");
}

TEST_CASE("a path that is not a regular file is refused") {
  const TemporaryDirectory scratch;
  const auto path = scratch.path() / "a.csv";
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  CsvFile file;
  const auto outcome = file.append(path, kHeader, "x,1\n");
  REQUIRE_FALSE(outcome);
  CHECK(outcome.error() == path.string() + " is not a regular file");
}

TEST_CASE("rows that do not fit leave the file as it was") {
  const TemporaryDirectory scratch;
  const auto path = scratch.path() / "a.csv";
  const auto other = scratch.path() / "b.csv";
  CsvFile file;
  REQUIRE(writes(file, path, "x,1\n"));
  const std::string many(20000, '\n');
  {
    const FileSizeLimit limit(10000);
    const auto appended = file.append(path, kHeader, many);
    REQUIRE_FALSE(appended);
    CHECK(appended.error() == "cannot write " + path.string() + ": File too large");
    CsvFile fresh;
    CHECK_FALSE(fresh.append(other, kHeader, many));
  }
  CHECK(read_text(path) == "name,step\nx,1\n");
  CHECK(files_in(scratch.path()) == std::set<std::string>{"a.csv"});
  CHECK(writes(file, path, "x,2\n"));
  CHECK(read_text(path) == "name,step\nx,1\nx,2\n");
}

TEST_CASE("a directory that cannot be created is an error with the directory's reason") {
  const TemporaryDirectory scratch;
  // "missing" can be created. The name of the directory in it is too long for any file system.
  const auto path = scratch.path() / "missing" / std::string(300, 'n') / "x.csv";
  CsvFile file;
  const auto appended = file.append(path, kHeader, "x,1\n");
  REQUIRE_FALSE(appended);
  CHECK(appended.error() == "cannot make " + path.parent_path().string() + ": File name too long");
}

TEST_CASE("a directory that may not be made is reported with that cause") {
  const TemporaryDirectory scratch;
  REQUIRE(::chmod(scratch.path().c_str(), 0555) == 0);
  const bool root = ::geteuid() == 0;
  if (root) REQUIRE(::seteuid(65534) == 0);
  const auto made = make_directories(scratch / "a" / "b");
  if (root) REQUIRE(::seteuid(0) == 0);
  REQUIRE_FALSE(made);
  CHECK(made.error() == "cannot make " + (scratch / "a").string() + ": Permission denied");
  REQUIRE(::chmod(scratch.path().c_str(), 0755) == 0);
}

TEST_CASE("rows lost to a full disk are reported and later rows are written again") {
  const TemporaryDirectory scratch;
  const auto path = scratch.path() / "a.csv";
  const std::string many(200000, '\n');
  bool first = false;
  std::string error;
  std::string kept;
  bool again = false;
  const bool mounted = on_small_disk(scratch.path(), 65536, [&] {
    CsvFile file;
    first = writes(file, path, "x,1\n");
    const auto full = file.append(path, kHeader, many);
    error = full ? "" : full.error();
    kept = read_text(path);
    again = writes(file, path, "x,2\n");
  });
  if (!mounted) {
    WARN("skipped: needs root, to mount a small disk");
    return;
  }
  CHECK(first);
  CHECK(error == "cannot write " + path.string() + ": No space left on device");
  CHECK(kept == "name,step\nx,1\n");
  CHECK(again);
}
