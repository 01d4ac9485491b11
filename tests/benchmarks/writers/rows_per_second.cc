// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <stdexcept>
#include <thread>

#include "tests/benchmarks/benches.h"
#include "tests/benchmarks/measure/range.h"
#include "tests/benchmarks/measure/scratch_job.h"
#include "writers/queue/marker.h"
#include "writers/queue/writer_thread.h"
#include "writers/sinks/csv/csv_sink.h"
#include "writers/sinks/sqlite/metrics_schema.h"
#include "writers/sinks/sqlite/sqlite_sink.h"

namespace gradmon {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kRowsOfStep = 1000;
constexpr ValueMask kAllOps = (1U << kOps) - 1;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// The rows of one step of a model with a thousand tensors.
std::vector<Record> rows_of_step() {
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal;
  std::vector<Record> rows(kRowsOfStep);
  for (std::uint64_t i = 0; i < kRowsOfStep; ++i) {
    Record& row = rows[i];
    row.revision = 1;
    row.sequence = i;
    row.values = {-std::abs(normal(random)),
                  std::abs(normal(random)),
                  normal(random) * 1e-5,
                  std::abs(normal(random)) * 10,
                  0,
                  std::abs(normal(random)) * 1e-3};
    row.target = static_cast<std::uint32_t>(i);
    row.shape = static_cast<std::uint32_t>(kRowsOfStep);
    row.kind = Kind::grad_reduced;
    row.dtype = DType::float32;
    row.mask = kAllOps;
  }
  return rows;
}

void push_steps(RecordQueue& queue, std::vector<Record>& rows, std::int64_t steps) {
  for (std::int64_t step = 0; step < steps; ++step) {
    queue.begin_step();
    for (Record& row : rows) {
      row.step = step;
      queue.push(row);
    }
    queue.end_step(Revision{1}, Step{step});
  }
  queue.end_collection(Revision{1}, Step{steps - 1});
  if (queue.dropped() > 0) throw std::runtime_error("rows were dropped");
}

// Rows per second, from the first push until the reader has taken the last row.
double queue_rate(std::int64_t steps) {
  RecordQueue queue(QueueOptions{});
  std::vector<Record> rows = rows_of_step();
  const std::size_t all = static_cast<std::size_t>(steps) * rows.size();
  std::thread reader([&queue, all] {
    std::vector<Record> batch;
    std::vector<Marker> markers;
    for (std::size_t taken = 0; taken < all;) {
      queue.wait(RecordQueue::WakeFor::markers_or_half_full);
      queue.take_markers(markers);
      markers.clear();
      for (std::size_t n = 1; n > 0; taken += n) {
        batch.clear();
        n = queue.take(batch, 4096);
      }
    }
  });
  const auto begin = Clock::now();
  push_steps(queue, rows, steps);
  reader.join();
  return static_cast<double>(all) / seconds_since(begin);
}

// A sink under test.
struct SinkRun {
  std::unique_ptr<Sink> (*make)(const std::filesystem::path& output, std::shared_ptr<const NameTable> names);
  std::size_t (*rows_on_disk)(const std::filesystem::path& output);
};

std::unique_ptr<Sink> make_csv(const std::filesystem::path& output, std::shared_ptr<const NameTable> names) {
  return std::make_unique<CsvSink>([output] { return output; }, std::move(names));
}

std::unique_ptr<Sink> make_sqlite(const std::filesystem::path& output,
                                  std::shared_ptr<const NameTable> names) {
  std::filesystem::create_directories(output);
  MetricsFile::Options file;
  file.directory = [output] { return output; };
  return std::make_unique<SqliteSink>(std::move(file), std::move(names), Rank{0});
}

std::size_t rows_in_database(const std::filesystem::path& output) {
  auto database = SqliteDatabase::open(output / kMetricsFileName, SqliteDatabase::Access::read_only);
  if (!database) throw std::runtime_error(database.error().text);
  const auto rows = database->integer("SELECT count(*) FROM v_metric_4");
  if (!rows) throw std::runtime_error(rows.error().text);
  return static_cast<std::size_t>(*rows);
}

// Rows per second, from the first push until all rows are in their files.
double sink_rate(const SinkRun& run, std::int64_t steps) {
  const ScratchJob place("{}");
  std::vector<Record> rows = rows_of_step();
  auto names = std::make_shared<NameTable>();
  for (std::uint64_t i = 0; i < kRowsOfStep; ++i) names->intern("layers." + std::to_string(i) + ".weight", 0);
  names->intern("[512, 512]");
  auto queue = std::make_shared<RecordQueue>(QueueOptions{});
  std::mutex mutex;
  std::condition_variable changed;
  bool finished = false;
  WriterThread writer(queue, [&](Revision, Step) {
    const std::lock_guard lock(mutex);
    finished = true;
    changed.notify_all();
  });
  Layout layout;
  layout.revision = Revision{1};
  layout.ops = {Op::norm, Op::min, Op::max, Op::mean, Op::nans, Op::zeros};
  std::vector<std::unique_ptr<Sink>> sinks;
  sinks.push_back(run.make(place.output(), names));
  writer.begin_revision(layout, std::move(sinks));
  const auto begin = Clock::now();
  push_steps(*queue, rows, steps);
  std::unique_lock lock(mutex);
  if (!changed.wait_for(lock, std::chrono::seconds(60), [&] { return finished; }))
    throw std::runtime_error("the rows were not written within 60 s");
  const double taken = seconds_since(begin);
  lock.unlock();
  const std::size_t all = static_cast<std::size_t>(steps) * rows.size();
  if (run.rows_on_disk(place.output()) != all) throw std::runtime_error("not all rows are on disk");
  return static_cast<double>(all) / taken;
}

Figure figure_of(const std::string& name, double goal, const std::string& what, int repetitions,
                 const std::function<double()>& rate) {
  std::vector<double> rates;
  for (int i = 0; i < repetitions; ++i) rates.push_back(rate());
  const Range range = range_of(rates);
  Figure figure;
  figure.name = name;
  figure.value = range.median;
  figure.unit = "rows/s";
  figure.goal = Goal{Goal::Sense::at_least, goal};
  figure.how =
      what + "; minimum, median and maximum of " + std::to_string(repetitions) + ": " + text_of(range);
  return figure;
}

std::vector<Figure> measure(Effort effort) {
  const bool quick = effort == Effort::quick;
  return {
      figure_of("rows_per_s_queue", 5e6, "one producer, one reader, steps of 1,000 rows, 65,536 places",
                quick ? 2 : 15, [&] { return queue_rate(quick ? 100 : 2000); }),
      figure_of(
          "rows_per_s_csv", 2e6,
          "one producer, queue, writer thread and CSV files of six ops, one for each step of 1,000 rows",
          quick ? 2 : 15,
          [&] {
            return sink_rate({make_csv, records_on_disk}, quick ? 20 : 300);
          }),
      figure_of("rows_per_s_sqlite", 3e5,
                "one producer, queue, writer thread and the SQLite database of six ops, steps of 1,000 rows",
                quick ? 2 : 15, [&] {
                  return sink_rate({make_sqlite, rows_in_database}, quick ? 20 : 300);
                })};
}

}  // namespace

Bench rows_per_second() { return {{"rows_per_s_queue", "rows_per_s_csv", "rows_per_s_sqlite"}, measure}; }

}  // namespace gradmon
