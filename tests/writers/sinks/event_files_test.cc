// SPDX-License-Identifier: Apache-2.0
#include "writers/sinks/event_files.h"

#include <sys/stat.h>

#include <random>
#include <set>
#include <tuple>

#include "tests/support/catch.h"
#include "tests/support/resource_limit.h"
#include "tests/support/temporary_directory.h"
#include "tests/writers/killed_writer.h"
#include "tests/writers/sample_records.h"
#include "tests/writers/sinks/event_reader.h"
#include "writers/sinks/event.pb.h"
#include "writers/sinks/event_records.h"
#include "writers/sinks/tensorboard_sink.h"

using namespace gradmon;

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

namespace {

constexpr int kTargets = 300;

// A job's sink: gradients of 300 parameters, and a scalar that is also drawn over samples.
class Job {
 public:
  explicit Job(const fs::path& directory, std::uint64_t most_bytes = 30'000)
      : sink_({[directory] { return directory; }, names_, Rank{0}, "{}", most_bytes, Resume::yes}) {
    for (int i = 0; i < kTargets; ++i) targets_.push_back(names_->intern("w" + std::to_string(i)));
    REQUIRE(sink_.begin_revision(Layout{}));
  }

  bool write(std::int64_t step) {
    std::vector<Record> records;
    for (int i = 0; i < kTargets; ++i) {
      Record& record = records.emplace_back(plain_record(step, static_cast<std::uint64_t>(i)));
      record.target = targets_[static_cast<std::size_t>(i)];
      record.values[static_cast<std::size_t>(Op::norm)] = static_cast<double>(step * 1000 + i);
    }
    Record& loss = records.emplace_back(plain_record(step, 0));
    loss.kind = Kind::scalar;
    loss.target = loss_;
    loss.mask = static_cast<ValueMask>(bit_of(Column::value) | bit_of(Column::samples));
    // Numbers of samples are those of steps that are still to come.
    loss.values[static_cast<std::size_t>(Column::samples)] = static_cast<double>(step + 5);
    loss.values[static_cast<std::size_t>(Column::value)] = static_cast<double>(step);
    return sink_.write_step(Step{step}, records).has_value();
  }

 private:
  const std::shared_ptr<NameTable> names_ = std::make_shared<NameTable>();
  std::vector<std::uint32_t> targets_;
  const std::uint32_t loss_ = names_->intern("loss");
  TensorBoardSink sink_;
};

using PointKey = std::tuple<std::string, std::int64_t, float>;

// All points, none of which may be there twice.
std::set<PointKey> points_once(const fs::path& directory) {
  std::set<PointKey> keys;
  for (const Point& point : points_in(directory / "tensorboard"))
    REQUIRE(keys.emplace(point.tag, point.step, point.value).second);
  return keys;
}

std::set<PointKey> uninterrupted(std::int64_t steps) {
  const TemporaryDirectory scratch;
  Job job(scratch.path());
  for (std::int64_t step = 0; step < steps; ++step) REQUIRE(job.write(step));
  return points_once(scratch.path());
}

// Writes the steps 0 to 11, then waits to be killed.
bool writes_or_waits(Job& job, std::int64_t step) {
  if (step == 12) ::pause();
  return job.write(step);
}

}  // namespace

TEST_CASE("a killed job, resumed in a new file, leaves the points of an uninterrupted one") {
  std::mt19937 random(9);
  const std::set<PointKey> expected = uninterrupted(12);
  REQUIRE(expected.size() == 12 * (kTargets + 2));
  for (int i = 0; i < kill_count(10, 300); ++i) {
    const TemporaryDirectory scratch;
    const fs::path events = scratch / "tensorboard";
    const int steps = 1 + static_cast<int>(random() % 8);
    {
      Job job(scratch.path());
      REQUIRE(kill_after(steps, std::chrono::microseconds(random() % 1000),
                         [&](std::int64_t step) { return writes_or_waits(job, step); }) >= 0);
    }
    if (i % 2 == 0) {  // Kill at any byte of the last rows.
      const fs::path last = event_files_in(events).back();
      const auto size = fs::file_size(last);
      fs::resize_file(last, size - random() % (std::min<std::uintmax_t>(8000, size) + 1));
    }
    const auto before = event_files_in(events);
    const int from = static_cast<int>(random() % static_cast<unsigned>(steps));
    Job job(scratch.path());
    for (std::int64_t step = from; step < 12; ++step) REQUIRE(job.write(step));
    CAPTURE(i, steps, from);
    CHECK(event_files_in(events).size() > before.size());
    for (const fs::path& file : event_files_in(events)) {
      const std::string bytes = read_text(file);
      REQUIRE(parse_events(bytes).whole_bytes == bytes.size());
    }
    REQUIRE(points_once(scratch.path()) == expected);
  }
}

TEST_CASE("a resumed job that finds all its rows begins a file with its config alone") {
  const TemporaryDirectory scratch;
  for (int job = 0; job < 3; ++job) REQUIRE(Job(scratch.path(), EventFiles::kBytesOfAFile).write(4));
  const auto files = event_files_in(scratch / "tensorboard");
  REQUIRE(files.size() == 3);
  CHECK(parse_events(read_text(files[0])).events.size() == 2 + kTargets + 2);
  CHECK(parse_events(read_text(files[2])).events.size() == 2);
}

TEST_CASE("only files that can have a row of the resumed steps are read") {
  const TemporaryDirectory scratch;
  {
    Job job(scratch.path());
    for (std::int64_t step = 0; step < 12; ++step) REQUIRE(job.write(step));
  }
  REQUIRE(event_files_in(scratch / "tensorboard").size() > 4);
  const auto later = find_events_in(scratch / "tensorboard", 12);
  REQUIRE(later);
  CHECK(later->size() == 1);
  const auto all = find_events_in(scratch / "tensorboard", 0);
  REQUIRE(all);
  CHECK(all->size() == event_files_in(scratch / "tensorboard").size());
  CHECK(find_events_in(scratch / "nowhere", 0).value().empty());
  write_text(scratch / "no directory", "");
  CHECK_FALSE(find_events_in(scratch / "no directory", 0));
}

TEST_CASE("a huge file of another program is neither read nor cut, and the newest of ours is repaired") {
  const TemporaryDirectory scratch;
  const fs::path events = scratch / "tensorboard";
  REQUIRE(Job(scratch.path(), EventFiles::kBytesOfAFile).write(0));
  const fs::path ours = event_files_in(events).at(0);
  const auto whole = fs::file_size(ours);
  write_text(ours, read_text(ours) + "torn");
  const fs::path huge = events / "events.out.tfevents.9000000000.host.1";
  write_text(huge, "");
  fs::resize_file(huge, 2 * EventFiles::kBytesOfAFile + 1);  // of holes
  {
    Job job(scratch.path(), EventFiles::kBytesOfAFile);
    for (std::int64_t step = 0; step < 2; ++step) REQUIRE(job.write(step));
  }
  CHECK(fs::file_size(huge) == 2 * EventFiles::kBytesOfAFile + 1);
  CHECK(fs::file_size(ours) == whole);
  fs::remove(huge);
  CHECK(points_once(scratch.path()) == uninterrupted(2));
}

TEST_CASE("small files of other programs are neither used nor cut, and the newest of ours is repaired") {
  const TemporaryDirectory scratch;
  const fs::path events = scratch / "tensorboard";
  REQUIRE(Job(scratch.path(), EventFiles::kBytesOfAFile).write(0));
  const fs::path ours = event_files_in(events).at(0);
  const std::string whole = read_text(ours);
  write_text(ours, whole + "torn");
  // TensorBoard's own writer names itself; an older one has only another form of name.
  tensorboard::Event version;
  version.set_file_version("brain.Event:2");
  version.mutable_source_metadata()->set_writer("tensorboard.summary.writer.event_file_writer");
  const std::string rows = whole.substr(file_version_record(0).size()) + "torn";
  const fs::path named = events / "events.out.tfevents.9000000000.host.1";
  const fs::path numbered = events / "events.out.tfevents.9000000001.host.1.0";
  write_text(named, record_of(version.SerializeAsString()) + rows);
  write_text(numbered, rows);
  const std::string before = read_text(named);
  const auto known = find_events_in(events, 0);
  REQUIRE(known);
  CHECK(known->size() == 1);
  CHECK(read_text(named) == before);
  CHECK(read_text(numbered) == rows);
  CHECK(read_text(ours) == whole);
  CHECK(find_samples_in_events(events, 1).value() == SamplesByStep{{0, 5}});
}

TEST_CASE("a file of ours is known by the form of its name") {
  const TemporaryDirectory scratch;
  CHECK(is_named_as_ours(next_event_file(scratch.path(), 1764000000)));
  CHECK(is_named_as_ours("events.out.tfevents.1764000000.node7.example.4711"));
  for (const char* other :
       {"events.out.tfevents.1764000000.node7.4711.0", "events.out.tfevents.1764000000.node7",
        "events.out.tfevents.1764000000.node7.4711.0.v2", "events.out.tfevents.1764000000", "events.out"})
    CHECK_FALSE(is_named_as_ours(other));
}

TEST_CASE("the events of damaged bytes are those before the damage") {
  const TemporaryDirectory scratch;
  REQUIRE(Job(scratch.path(), EventFiles::kBytesOfAFile).write(4));
  const std::string text = read_text(event_files_in(scratch / "tensorboard").at(0));
  std::mt19937 random(2);
  for (int i = 0; i < 500; ++i) {
    std::string damaged = text.substr(0, random() % (text.size() + 1));
    const std::size_t at = damaged.empty() ? 0 : random() % damaged.size();
    if (!damaged.empty() && i % 2 == 0) damaged[at] ^= static_cast<char>(1 + random() % 255);
    const KnownEvents there = find_events(damaged);
    REQUIRE(there.whole_bytes <= damaged.size());
    REQUIRE(parse_events(std::string_view(text).substr(0, there.whole_bytes)).whole_bytes ==
            there.whole_bytes);
    if (i % 2 == 0 && !damaged.empty()) REQUIRE(there.whole_bytes <= at);
  }
}

TEST_CASE("records are read up to the first that is torn or damaged") {
  const std::string text = record_of("abc") + record_of("") + record_of("defg");
  CHECK(first_record(text) == "abc");
  CHECK(size_of_record("abc") == 19);
  CHECK(first_record(std::string_view(text).substr(19)) == "");
  for (std::size_t length = 0; length < 19; ++length)
    CHECK_FALSE(first_record(std::string_view(text).substr(0, length)));
  for (std::size_t at = 0; at < 19; ++at) {
    std::string damaged = text;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    CHECK_FALSE(first_record(damaged));
  }
}
