// SPDX-License-Identifier: Apache-2.0
#include "writers/sinks/csv_sink.h"

#include <sys/inotify.h>

#include <cstring>
#include <fstream>
#include <map>
#include <random>

#include "control/files/file_access.h"
#include "tests/support/catch.h"
#include "tests/support/resource_limit.h"
#include "tests/support/temporary_directory.h"
#include "tests/writers/files_in.h"
#include "tests/writers/killed_writer.h"
#include "tests/writers/sample_records.h"

using namespace gradmon;

namespace {

constexpr int kTargets = 400;

Layout layout(std::int64_t steps_a_file, std::vector<Op> ops = {Op::norm}, std::uint64_t revision = 1) {
  Layout made;
  made.revision = Revision{revision};
  made.ops = std::move(ops);
  made.step_count_per_record = steps_a_file;
  return made;
}

// A job's sink. Its rows have names with commas, quotes and line ends; each job has ids of its own.
class Job {
 public:
  Job(const std::filesystem::path& directory, const Layout& layout, Resume resume = Resume::yes)
      : sink_([directory] { return directory; }, names_, resume) {
    names_->intern("another id in each job " + std::to_string(::getpid()) + std::to_string(layout.ndigits));
    for (int i = 0; i < kTargets; ++i)
      targets_.push_back(names_->intern("\"layers\",\n" + std::to_string(i), i % 3));
    REQUIRE(sink_.begin_revision(layout));
  }

  bool write(std::int64_t step, Kind kind = Kind::grad_reduced, int targets = kTargets) {
    std::vector<Record> records;
    for (int i = 0; i < targets; ++i) {
      Record& record = records.emplace_back(plain_record(step, static_cast<std::uint64_t>(i)));
      record.kind = kind;
      record.target = targets_[static_cast<std::size_t>(i)];
      record.micro_step = i % 2;
      record.values[static_cast<std::size_t>(Op::norm)] = static_cast<double>(step * 1000 + i);
      record.values[static_cast<std::size_t>(Op::max)] = 1;
      record.mask = bit_of(Op::norm) | bit_of(Op::max);
    }
    return sink_.write_step(Step{step}, records).has_value();
  }

 private:
  const std::shared_ptr<NameTable> names_ = std::make_shared<NameTable>();
  std::vector<std::uint32_t> targets_;
  CsvSink sink_;
};

// The files that a job leaves that writes these steps and is never killed.
std::string uninterrupted(std::int64_t steps, std::int64_t steps_a_file, const std::string& file, Kind kind) {
  const TemporaryDirectory scratch;
  Job job(scratch.path(), layout(steps_a_file), Resume::no);
  for (std::int64_t step = 0; step < steps; ++step) REQUIRE(job.write(step, kind));
  return read_text(scratch / file);
}

// The rows of a file, by step; 0 to 8.
std::map<std::int64_t, int> rows_by_step(const std::filesystem::path& file) {
  std::map<std::int64_t, int> rows;
  const std::string text = read_text(file);
  for (std::int64_t step = 0; step < 9; ++step) {
    const std::string cells = "\"," + std::to_string(step) + ",";
    for (auto at = text.find(cells); at != std::string::npos; at = text.find(cells, at + 1)) ++rows[step];
  }
  return rows;
}

// Writes a file of an earlier job with a row of one step.
void leave_row(const std::filesystem::path& path, std::int64_t step) {
  std::ofstream(path) << "vpp_stage,name,step,max,shape,dtype\n0,\"\"\"layers\"\",\n0\"," << step
                      << ",1.0,,\n";
}

// Writes the steps 0 to 11, then waits to be killed.
bool writes_or_waits(Job& job, std::int64_t step, Kind kind) {
  if (step == 12) ::pause();
  return job.write(step, kind);
}

}  // namespace

namespace {

constexpr const char* kHeader = "name,step\n";

// A fixture of TEST_CASE_METHOD.
struct ScratchFile {
  const TemporaryDirectory scratch;
  const fs::path path = scratch / "a.csv";
};

bool writes(CsvFile& file, const fs::path& path, const std::string& rows) {
  return file.append(path, kHeader, rows) == CsvFile::Outcome::written;
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

TEST_CASE_METHOD(ScratchFile, "a partial last row is cut off before rows are added") {
  for (const char* const left : {"name,step\nx,1\ny", "name,step\nx,1\n\"a\nb", "name,step\nx,1\n\"a\n"}) {
    write_text(path, left);
    CsvFile file;
    CHECK(writes(file, path, "z,2\n"));
    CHECK(read_text(path) == "name,step\nx,1\nz,2\n");
  }
}

TEST_CASE_METHOD(ScratchFile, "a file that has replaced ours is checked again before rows are added") {
  CsvFile file;
  REQUIRE(writes(file, path, "x,1\ny,1\n"));
  write_text(scratch.path() / "b.csv", "name,step\nx,1\ny,1,");
  fs::rename(scratch.path() / "b.csv", path);
  CHECK(writes(file, path, "z,2\n"));
  CHECK(read_text(path) == "name,step\nx,1\nz,2\n");
}

TEST_CASE_METHOD(ScratchFile, "a quoted line end is not the end of a row") {
  write_text(path, "name,step\n\"a\nb\",1\n");
  CsvFile file;
  CHECK(writes(file, path, "z,2\n"));
  CHECK(read_text(path) == "name,step\n\"a\nb\",1\nz,2\n");
}

TEST_CASE_METHOD(ScratchFile, "a file without a whole header is written anew") {
  for (const char* const left : {"", "name,st"}) {
    write_text(path, left);
    CsvFile file;
    CHECK(writes(file, path, "x,1\n"));
    CHECK(read_text(path) == "name,step\nx,1\n");
  }
}

TEST_CASE_METHOD(ScratchFile, "a file with other columns is left as it is") {
  write_text(path, "name,step,norm\nx,1");
  CsvFile file;
  CHECK(file.append(path, kHeader, "x,2\n") == CsvFile::Outcome::other_header);
  CHECK(read_text(path) == "name,step,norm\nx,1");
}

TEST_CASE_METHOD(ScratchFile, "a large file without a line end is left as it is") {
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

TEST_CASE_METHOD(ScratchFile, "a path that is not a regular file is refused") {
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  CsvFile file;
  const auto outcome = file.append(path, kHeader, "x,1\n");
  REQUIRE_FALSE(outcome);
  CHECK(outcome.error() == path.string() + " is not a regular file");
}

TEST_CASE_METHOD(ScratchFile, "rows that do not fit leave the file as it was") {
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

TEST_CASE("a resumed job writes the steps that are missing and no others") {
  for (const std::int64_t steps_a_file : {1, 4, 1000}) {
    const TemporaryDirectory scratch;
    {
      Job job(scratch.path(), layout(steps_a_file));
      for (const std::int64_t step : {0, 1, 2, 5, 6}) REQUIRE(job.write(step));
      REQUIRE(job.write(6, Kind::actv));
    }
    Job job(scratch.path(), layout(steps_a_file));
    for (std::int64_t step = 5; step < 9; ++step) REQUIRE(job.write(step));
    for (std::int64_t step = 5; step < 9; ++step) REQUIRE(job.write(step, Kind::actv));
    std::map<std::int64_t, int> rows;
    for (const std::string& file : files_in(scratch.path())) {
      if (file.find("grad_reduced") != 0) continue;
      for (const auto& [step, count] : rows_by_step(scratch / file)) rows[step] += count;
    }
    CAPTURE(steps_a_file);
    CHECK(rows ==
          std::map<std::int64_t, int>{{0, 400}, {1, 400}, {2, 400}, {5, 400}, {6, 400}, {7, 400}, {8, 400}});
  }
}

TEST_CASE("a job that was killed amid a row leaves, resumed, what an uninterrupted one leaves") {
  std::mt19937 random(5);
  for (const Kind kind : {Kind::grad_reduced, Kind::actv}) {
    const std::string file = std::string(name_of(kind)) + "_0-999999.csv";
    const std::string expected = uninterrupted(12, 1'000'000, file, kind);
    for (int i = 0; i < kill_count(10, 300); ++i) {
      const TemporaryDirectory scratch;
      const int steps = 1 + static_cast<int>(random() % 8);
      {
        Job job(scratch.path(), layout(1'000'000));
        REQUIRE(kill_after(steps, std::chrono::microseconds(random() % 1000),
                           [&](std::int64_t step) { return writes_or_waits(job, step, kind); }) >= 0);
      }
      if (i % 2 == 0) {  // Kill at any byte of the last step.
        const auto size = std::filesystem::file_size(scratch / file);
        std::filesystem::resize_file(scratch / file, size - random() % 3000);
      }
      Job job(scratch.path(), layout(1'000'000));
      for (std::int64_t step = 0; step < 12; ++step) REQUIRE(job.write(step, kind));
      CAPTURE(i, steps);
      REQUIRE(read_text(scratch / file) == expected);
    }
  }
}

TEST_CASE("a resumed job with other columns leaves the steps that are there and takes a file of its own") {
  const TemporaryDirectory scratch;
  REQUIRE(Job(scratch.path(), layout(1000)).write(1, Kind::grad_reduced, 1));
  const std::string first = read_text(scratch / "grad_reduced_0-999.csv");
  {
    Job job(scratch.path(), layout(1000, {Op::max}));
    for (std::int64_t step = 1; step < 3; ++step) REQUIRE(job.write(step, Kind::grad_reduced, 1));
  }
  const std::string second = "vpp_stage,name,step,max,shape,dtype\n0,\"\"\"layers\"\",\n0\",2,1.0,,\n";
  CHECK(read_text(scratch / "grad_reduced_0-999.r1.csv") == second);
  {
    Job job(scratch.path(), layout(1000, {Op::max, Op::norm}));
    for (std::int64_t step = 1; step < 4; ++step) REQUIRE(job.write(step, Kind::grad_reduced, 1));
  }
  CHECK(read_text(scratch / "grad_reduced_0-999.csv") == first);
  CHECK(read_text(scratch / "grad_reduced_0-999.r1.csv") == second);
  CHECK(read_text(scratch / "grad_reduced_0-999.r2.csv") ==
        "vpp_stage,name,step,max,norm,shape,dtype\n0,\"\"\"layers\"\",\n0\",3,1.0,3000.0,,\n");
}

TEST_CASE("steps that an earlier job left in files of other columns or other ranges are not written again") {
  const TemporaryDirectory scratch;
  leave_row(scratch / "grad_reduced_0-999.r7.csv", 2);
  leave_row(scratch / "grad_reduced_0-9.csv", 3);
  leave_row(scratch / "grad_reduced_1000-1999.csv", 1000);
  leave_row(scratch / "grad_unreduced_0-999.csv", 1);
  {
    Job job(scratch.path(), layout(1000));
    for (std::int64_t step = 1; step < 5; ++step) REQUIRE(job.write(step, Kind::grad_reduced, 1));
  }
  CHECK(rows_by_step(scratch / "grad_reduced_0-999.csv") == std::map<std::int64_t, int>{{1, 1}, {4, 1}});
  Job job(scratch.path(), layout(100));
  for (std::int64_t step = 1; step < 6; ++step) REQUIRE(job.write(step, Kind::grad_reduced, 1));
  CHECK(rows_by_step(scratch / "grad_reduced_0-99.csv") == std::map<std::int64_t, int>{{5, 1}});
}

TEST_CASE("the rows of a file are found whatever the parts in which its bytes come") {
  const std::string text =
      "vpp_stage,name,step,micro_step,norm,shape,dtype\n0,a,3,0,1.0,\"[2, 2]\",torch.float32\n"
      "0,\"b,\n\"\"5\"\"\",4,1,2.0,\"[2, 2]\",torch.float32\n1,c,4,0,1.0,[],torch.float32\n0,torn,5,0,1";
  for (std::size_t part = 1; part < text.size(); ++part) {
    CsvRowScanner there;
    for (std::size_t at = 0; at < text.size(); at += part)
      there.take(std::string_view(text).substr(at, part));
    CHECK(there.whole_bytes() == text.rfind('\n') + 1);
    CHECK(there.rows().has(3, "anything"));
    CHECK(there.rows().has(4, "0,\"b,\n\"\"5\"\"\",4,1"));
    CHECK(there.rows().has(4, "1,c,4,0"));
    CHECK_FALSE(there.rows().has(4, "1,c,4,1"));
    CHECK_FALSE(there.rows().has_step(5));
  }
}

TEST_CASE("any bytes are read, up to the last line end outside quotes") {
  std::mt19937 random(8);
  const std::string bytes = "\"\n,,,0123456789-step\rname";
  for (int i = 0; i < 20000; ++i) {
    std::string text = i % 2 == 0 ? "name,step,value\n" : "";
    for (auto left = random() % 60; left > 0; --left) text += bytes[random() % bytes.size()];
    CsvRowScanner there;
    there.take(text);
    bool quoted = false;
    std::size_t whole = 0;
    for (std::size_t at = 0; at < text.size(); ++at) {
      if (text[at] == '"') quoted = !quoted;
      if (text[at] == '\n' && !quoted) whole = at + 1;
    }
    REQUIRE(there.whole_bytes() == whole);
  }
}

TEST_CASE("a file without a column of steps has no known rows, and scalars are known by name and step") {
  CsvRowScanner stacks;
  stacks.take("module_name,stack_info\nfc1,\"File\n\"\n");
  CHECK_FALSE(stacks.rows().has_step(0));
  CHECK(stacks.whole_bytes() == 35);
  CsvRowScanner scalars;
  scalars.take("name,step,samples,value\nloss,7,,2.5\n");
  CHECK(scalars.rows().has(7, "loss,7"));
  CHECK_FALSE(scalars.rows().has(7, "grad-norm,7"));
}
