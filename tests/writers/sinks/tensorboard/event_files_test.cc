// SPDX-License-Identifier: Apache-2.0
#include "writers/sinks/tensorboard/event_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include "control/debian_version.h"
#include "tests/support/temporary_directory.h"
#include "tests/writers/file_size_limit.h"
#include "tests/writers/sinks/tensorboard/event_reader.h"
#include "tests/writers/small_disk.h"
#include GRADMON_CATCH_HEADER

using namespace gradmon;
namespace fs = std::filesystem;

namespace {

const std::string kHead = "head;";

EventRows rows_of(const std::vector<std::string>& texts) {
  EventRows rows;
  for (const std::string& text : texts) {
    rows.bytes += text;
    rows.ends.push_back(rows.bytes.size());
  }
  return rows;
}

bool writes(EventFiles& files, const fs::path& directory, const std::string& row) {
  const auto outcome = files.append(directory, kHead, rows_of({row}));
  return outcome.error.empty() && outcome.rows_kept == 1;
}

std::vector<std::string> texts_in(const fs::path& directory) {
  std::vector<std::string> texts;
  for (const fs::path& file : event_files_in(directory)) texts.push_back(read_text(file));
  return texts;
}

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("rows follow each other in one file after the head") {
  const TemporaryDirectory scratch;
  EventFiles files;
  CHECK(writes(files, scratch.path(), "one;"));
  CHECK(writes(files, scratch.path(), "two;"));
  CHECK(texts_in(scratch.path()) == Texts{"head;one;two;"});
}

TEST_CASE("each start begins a new file whose name comes last") {
  const TemporaryDirectory scratch;
  for (int i = 0; i < 12; ++i) {
    EventFiles files;
    CHECK(writes(files, scratch.path(), std::to_string(i)));
    CHECK(texts_in(scratch.path()).back() == kHead + std::to_string(i));
  }
  CHECK(texts_in(scratch.path()).size() == 12);
}

TEST_CASE("a name has the time, the host and the process") {
  const TemporaryDirectory scratch;
  const std::string pid = "." + std::to_string(::getpid());
  const std::string name = next_event_file(scratch.path(), 1700000000);
  CHECK(name.rfind("events.out.tfevents.1700000000.", 0) == 0);
  CHECK(name.substr(name.size() - pid.size()) == pid);
  write_text(scratch.path() / "events.out.tfevents.1700000005.other.1", "");
  CHECK(next_event_file(scratch.path(), 1700000000).rfind("events.out.tfevents.1700000006.", 0) == 0);
  CHECK(next_event_file(scratch.path(), 1800000000).rfind("events.out.tfevents.1800000000.", 0) == 0);
}

TEST_CASE("names that are no event file's do not count") {
  const TemporaryDirectory scratch;
  for (const char* const name :
       {"events.out.tfevents.", "events.out.tfevents.x", "events.out.tfevents.99999999999999999999.h.1",
        "events.out.tfevents.9999999999.h.1", "events.out.tfevents.-5.h.1", "other"}) {
    write_text(scratch.path() / name, "");
  }
  CHECK(next_event_file(scratch.path(), 7).rfind("events.out.tfevents.0000000007.", 0) == 0);
}

TEST_CASE("a file that would become too large is followed by another one") {
  const TemporaryDirectory scratch;
  EventFiles files(20);
  for (const char* const row : {"1234567", "12345678", "1", "a row that is larger than a file", "2"})
    CHECK(writes(files, scratch.path(), row));
  CHECK(texts_in(scratch.path()) ==
        Texts{"head;123456712345678", "head;1", "head;a row that is larger than a file", "head;2"});
}

TEST_CASE("a removed or moved directory is made again") {
  const TemporaryDirectory scratch;
  const auto directory = scratch.path() / "run" / "tensorboard";
  EventFiles files;
  CHECK(writes(files, directory, "1"));
  fs::remove_all(scratch.path() / "run");
  CHECK(writes(files, directory, "2"));
  CHECK(texts_in(directory) == Texts{"head;2"});
  fs::rename(scratch.path() / "run", scratch.path() / "moved");
  CHECK(writes(files, directory, "3"));
  CHECK(texts_in(directory) == Texts{"head;3"});
  CHECK(texts_in(scratch.path() / "moved" / "tensorboard") == Texts{"head;2"});
}

TEST_CASE("a file that someone else has changed is not continued") {
  const TemporaryDirectory scratch;
  EventFiles files;
  CHECK(writes(files, scratch.path(), "1"));
  const fs::path first = event_files_in(scratch.path()).at(0);
  write_text(first, "head;1 torn");
  CHECK(writes(files, scratch.path(), "2"));
  const fs::path second = event_files_in(scratch.path()).at(1);
  fs::remove(second);
  REQUIRE(::mkfifo(second.c_str(), 0600) == 0);
  CHECK(writes(files, scratch.path(), "3"));
  fs::remove(second);
  const fs::path third = event_files_in(scratch.path()).at(1);
  fs::rename(third, scratch.path() / "x");
  fs::create_symlink(scratch.path() / "x", third);
  CHECK(writes(files, scratch.path(), "4"));
  fs::remove(third);
  fs::remove(scratch.path() / "x");
  CHECK(texts_in(scratch.path()) == Texts{"head;1 torn", "head;4"});
}

TEST_CASE("new event files have mode 0640 and their new directories 0750") {
  const TemporaryDirectory scratch;
  const mode_t before = ::umask(022);
  EventFiles files;
  CHECK(writes(files, scratch.path() / "new" / "deep", "1"));
  ::umask(before);
  struct stat seen {};
  REQUIRE(::stat(event_files_in(scratch.path() / "new" / "deep").at(0).c_str(), &seen) == 0);
  CHECK((seen.st_mode & 07777U) == 0640U);
  REQUIRE(::stat((scratch.path() / "new").c_str(), &seen) == 0);
  CHECK((seen.st_mode & 07777U) == 0750U);
}

TEST_CASE("a path without a directory is an error that names it") {
  const TemporaryDirectory scratch;
  write_text(scratch.path() / "file", "");
  EventFiles files;
  const auto outcome = files.append(scratch.path() / "file" / "tensorboard", kHead, rows_of({"1"}));
  CHECK(outcome.rows_kept == 0);
  CHECK(outcome.error ==
        "cannot make " + (scratch.path() / "file" / "tensorboard").string() + ": Not a directory");
}

TEST_CASE("after a partial write the file ends at its last whole row and goes on there") {
  const TemporaryDirectory scratch;
  EventFiles files;
  CHECK(writes(files, scratch.path(), "1;"));
  const fs::path file = event_files_in(scratch.path()).at(0);
  {
    const FileSizeLimit limit(20000);
    const auto outcome = files.append(scratch.path(), kHead,
                                      rows_of({std::string(9000, 'a'), std::string(9000, 'b'),
                                               std::string(9000, 'c'), std::string(9000, 'd')}));
    CHECK(outcome.rows_kept == 2);
    CHECK(outcome.error == "cannot write " + file.string() + ": File too large");
  }
  CHECK(writes(files, scratch.path(), ";2"));
  CHECK(texts_in(scratch.path()) ==
        Texts{"head;1;" + std::string(9000, 'a') + std::string(9000, 'b') + ";2"});
}

TEST_CASE("a file that cannot get its head leaves nothing behind") {
  const TemporaryDirectory scratch;
  EventFiles files;
  {
    const FileSizeLimit limit(2);
    const auto outcome = files.append(scratch.path(), kHead, rows_of({"1"}));
    CHECK(outcome.rows_kept == 0);
    CHECK(outcome.error.find(": File too large") != std::string::npos);
  }
  CHECK(texts_in(scratch.path()).empty());
  CHECK(writes(files, scratch.path(), "1"));
}

TEST_CASE("a full disk loses the rows that do not fit and later rows are written again") {
  const TemporaryDirectory scratch;
  std::vector<EventFiles::Outcome> outcomes;
  std::vector<Texts> texts;
  const bool mounted = on_small_disk(scratch.path(), 65536, [&] {
    write_text(scratch.path() / "filler", std::string(40960, 'x'));
    EventFiles files;
    const auto append = [&](const EventRows& rows) {
      outcomes.push_back(files.append(scratch.path() / "tensorboard", kHead, rows));
      texts.push_back(texts_in(scratch.path() / "tensorboard"));
    };
    const std::string large(10000, 'a');
    append(rows_of({large, large, large}));
    append(rows_of({large}));
    fs::remove(scratch.path() / "filler");
    append(rows_of({"end"}));
  });
  if (!mounted) {
    WARN("skipped: needs root, to mount a small disk");
    return;
  }
  CHECK(outcomes.at(0).rows_kept == 2);
  CHECK(outcomes.at(0).error.find(": No space left on device") != std::string::npos);
  const std::string kept = kHead + std::string(20000, 'a');
  CHECK(texts.at(0) == Texts{kept});
  CHECK(outcomes.at(1).rows_kept == 0);
  CHECK(texts.at(1) == Texts{kept});
  CHECK(outcomes.at(2).error.empty());
  CHECK(texts.at(2) == Texts{kept + "end"});
}
