// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <fstream>
#include <map>
#include <memory>
#include <random>

#include "control/debian_version.h"
#include "tests/support/temporary_directory.h"
#include "tests/writers/files_in.h"
#include "tests/writers/killed_writer.h"
#include "tests/writers/sample_records.h"
#include "writers/sinks/csv/csv_row_scanner.h"
#include "writers/sinks/csv/csv_sink.h"
#include GRADMON_CATCH_HEADER

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
                           [&](std::int64_t step) { return writes_or_waits(job, step, kind); }));
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
