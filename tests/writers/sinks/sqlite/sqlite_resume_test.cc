// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <random>

#include "control/debian_version.h"
#include "tests/support/temporary_directory.h"
#include "tests/writers/killed_writer.h"
#include "tests/writers/sinks/sqlite/metrics_database.h"
#include GRADMON_CATCH_HEADER

using namespace gradmon;

namespace {

constexpr std::uint32_t kRows = 1000;

class Job {
 public:
  Job(const std::filesystem::path& directory, Resume resume)
      : sink_(file_options(directory), names_, Rank{3}, resume) {
    REQUIRE(sink_.begin_revision(layout_with({Op::norm})));
  }
  tl::expected<void, SinkError> write(std::int64_t step, std::uint32_t rows = kRows) {
    return sink_.write_step(Step{step}, norm_records(*names_, step, rows));
  }

 private:
  const std::shared_ptr<NameTable> names_ = std::make_shared<NameTable>();
  SqliteSink sink_;
};

}  // namespace

TEST_CASE("a killed job goes on in the same database, with each step once") {
  std::mt19937 random(3);
  for (int i = 0; i < kill_count(10, 300); ++i) {
    const TemporaryDirectory scratch;
    const auto path = scratch / kMetricsFileName;
    const int steps = 1 + static_cast<int>(random() % 8);
    REQUIRE(kill_after(steps, std::chrono::microseconds(random() % 2000),
                       [&, job = std::shared_ptr<Job>()](std::int64_t step) mutable {
                         if (!job)
                           job = std::make_shared<Job>(scratch.path(),
                                                       Resume::yes);  // in the process that is killed
                         if (step == 12) ::pause();
                         return job->write(step).has_value();
                       }));
    {
      Job job(scratch.path(), Resume::yes);
      for (std::int64_t step = static_cast<std::int64_t>(random() % static_cast<unsigned>(steps)); step < 12;
           ++step)
        REQUIRE(job.write(step));
    }
    CAPTURE(i, steps);
    REQUIRE(integrity_error(path) == "");
    REQUIRE(!std::filesystem::exists(path.string() + ".aside-1"));
    REQUIRE(query_rows(path, "SELECT DISTINCT count(*) FROM v_metrics GROUP BY step") ==
            TextRows{std::to_string(kRows)});
    REQUIRE(query_integer(path, "SELECT count(DISTINCT step) FROM v_metrics") == 12);
    REQUIRE(query_integer(path, "SELECT count(*) FROM monitoring_targets") == kRows);
  }
}

TEST_CASE("rows that are there count as lost, but not for a resumed job, which adds those that are missing") {
  const TemporaryDirectory scratch;
  REQUIRE(Job(scratch.path(), Resume::no).write(5, 3));
  const auto again = Job(scratch.path(), Resume::no).write(5, 4);
  REQUIRE_FALSE(again);
  CHECK(again.error().rows_lost == 3);
  CHECK(Job(scratch.path(), Resume::yes).write(5, 6));
  CHECK(query_integer(scratch / kMetricsFileName, "SELECT count(*) FROM v_metrics") == 6);
}

TEST_CASE("steps that an earlier job has written keep its shapes, and the first new step has its own") {
  const TemporaryDirectory scratch;
  const auto write = [&](Resume resume, std::int64_t first, std::int64_t last, const char* shape) {
    const auto names = std::make_shared<NameTable>();
    SqliteSink sink(file_options(scratch.path()), names, Rank{3}, resume);
    REQUIRE(sink.begin_revision(layout_with({Op::norm})));
    for (std::int64_t step = first; step <= last; ++step) {
      std::vector<Record> records = norm_records(*names, step, 1);
      records.front().shape = names->intern(shape);
      REQUIRE(sink.write_step(Step{step}, records));
    }
  };
  write(Resume::no, 0, 7, "[8, 512]");
  write(Resume::yes, 5, 9, "[4, 512]");
  CHECK(query_rows(scratch / kMetricsFileName, "SELECT step, shape FROM target_tensors ORDER BY step") ==
        TextRows{"0|[8, 512]", "8|[4, 512]"});
}
