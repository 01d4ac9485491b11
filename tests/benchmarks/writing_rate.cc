// SPDX-License-Identifier: Apache-2.0
// Rows and values per second: through the queue, into files and databases, and past the alert rules.

#include <fcntl.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <future>
#include <memory>
#include <random>
#include <stdexcept>
#include <thread>

#include "control/files/descriptor.h"
#include "tests/benchmarks/collecting_rig.h"
#include "writers/alerts/alert_evaluator.h"
#include "writers/queue/record_queue.h"
#include "writers/queue/sink.h"
#include "writers/queue/writer_thread.h"
#include "writers/sinks/csv_sink.h"
#include "writers/sinks/metrics_schema.h"
#include "writers/sinks/sqlite_sink.h"
#include "writers/sinks/tensorboard_sink.h"
#include "writers/sinks/zstd_frames.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

using Names = std::shared_ptr<NameTable>;

constexpr std::size_t kRowsOfStep = 1000;
constexpr std::size_t kOpsOfRow = 6;
constexpr ValueMask kAllOps = (1U << kOpsOfRow) - 1;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// The rows of one step of a model with a thousand parameters, six ops.
std::vector<Record> rows_of_step(NameTable& names) {
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal;
  std::vector<Record> rows(kRowsOfStep);
  for (std::size_t i = 0; i < kRowsOfStep; ++i) {
    Record& row = rows[i];
    row.revision = 1;
    row.sequence = i;
    row.values = {-std::abs(normal(random)),
                  std::abs(normal(random)),
                  normal(random) * 1e-5,
                  std::abs(normal(random)) * 10,
                  0,
                  std::abs(normal(random)) * 1e-3};
    row.target = names.intern("layers." + std::to_string(i) + ".weight");
    row.shape = names.intern("[512, 512]");
    row.kind = Kind::grad_reduced;
    row.dtype = DType::float32;
    row.mask = kAllOps;
  }
  return rows;
}

const std::vector<Op> kSixOps = {Op::norm, Op::min, Op::max, Op::mean, Op::nans, Op::zeros};

Layout layout_of(const std::vector<Op>& ops = kSixOps, bool compress = false) {
  Layout layout;
  layout.compress = compress;
  layout.revision = Revision{1};
  layout.ops = ops;
  return layout;
}

// The steps of a model whose names are in `names`; this thread writes them.
void write_steps(Sink& sink, NameTable& names, const Layout& layout, std::int64_t steps) {
  const auto check = [](const tl::expected<void, SinkError>& written) {
    if (!written) throw std::runtime_error(written.error().text);
  };
  std::vector<Record> rows = rows_of_step(names);
  check(sink.begin_revision(layout));
  for (std::int64_t step = 0; step < steps; ++step) {
    for (Record& row : rows) row.step = step;
    check(sink.write_step(Step{step}, rows));
  }
}

// --- Queue, CSV files and database.

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
  NameTable names;
  RecordQueue queue(QueueOptions{});
  std::vector<Record> rows = rows_of_step(names);
  const std::size_t all = static_cast<std::size_t>(steps) * rows.size();
  std::thread reader([&queue, all] {
    for (std::size_t taken = 0; taken < all;) {
      auto batch = std::get<StepEnded>(queue.wait().message);
      taken += batch.count();
      queue.release(batch);
      queue.recycle(std::move(batch));
    }
  });
  const auto begin = Clock::now();
  push_steps(queue, rows, steps);
  reader.join();
  return static_cast<double>(all) / seconds_since(begin);
}

std::unique_ptr<Sink> make_csv(const fs::path& output, Names names) {
  return std::make_unique<CsvSink>([output] { return output; }, std::move(names));
}

std::unique_ptr<Sink> make_sqlite(const fs::path& output, Names names) {
  fs::create_directories(output);
  MetricsFile::Options file;
  file.directory = [output] { return output; };
  return std::make_unique<SqliteSink>(std::move(file), std::move(names), Rank{0});
}

std::size_t rows_in_database(const fs::path& output) {
  auto database = SqliteDatabase::open(output / kMetricsFileName, SqliteDatabase::Access::read_only);
  if (!database) throw std::runtime_error(database.error().text);
  const auto rows = database->integer("SELECT count(*) FROM v_metric_4");
  if (!rows) throw std::runtime_error(rows.error().text);
  return static_cast<std::size_t>(*rows);
}

// Rows per second, from the first push until all rows are in their files.
double sink_rate(std::unique_ptr<Sink> (*make)(const fs::path&, Names),
                 std::size_t (*rows_on_disk)(const fs::path&), std::int64_t steps,
                 const Layout& layout = layout_of()) {
  const ScratchJob place("{}");
  const auto names = std::make_shared<NameTable>();
  std::vector<Record> rows = rows_of_step(*names);
  auto queue = std::make_shared<RecordQueue>(QueueOptions{});
  std::promise<void> finished;
  WriterThread writer(queue, [&](Revision, Step) { finished.set_value(); });
  std::vector<std::unique_ptr<Sink>> sinks;
  sinks.push_back(make(place.output(), names));
  writer.begin_revision(layout, std::move(sinks));
  const auto begin = Clock::now();
  push_steps(*queue, rows, steps);
  if (finished.get_future().wait_for(std::chrono::seconds(60)) != std::future_status::ready)
    throw std::runtime_error("the rows were not written within 60 s");
  const double taken = seconds_since(begin);
  const std::size_t all = static_cast<std::size_t>(steps) * rows.size();
  if (rows_on_disk(place.output()) != all) throw std::runtime_error("not all rows are on disk");
  return static_cast<double>(all) / taken;
}

std::size_t rows_in_frames(const fs::path& output) {
  std::size_t lines = 0, files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(output)) {
    if (entry.path().extension() != ".zst") continue;
    const Descriptor file(::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC));
    const auto end = read_frames(file.get(), [&](std::string_view text) {
      lines += static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
    });
    if (!end) throw std::runtime_error(end.error());
    ++files;
  }
  return lines - files;  // without the headers
}

// Bytes of plain CSV files of 20 steps over those of compressed ones.
double bytes_saved(const std::vector<Op>& ops) {
  const auto bytes = [&](bool compress) {
    const TemporaryDirectory scratch;
    const auto names = std::make_shared<NameTable>();
    write_steps(*make_csv(scratch / "rows", names), *names, layout_of(ops, compress), 20);
    double size = 0;
    for (const auto& file : fs::directory_iterator(scratch / "rows"))
      size += static_cast<double>(file.file_size());
    return size;
  };
  return bytes(false) / bytes(true);
}

// Values per second of one thread, from the first row until all are in their event files.
double event_file_rate(std::int64_t steps) {
  const TemporaryDirectory scratch;
  const auto names = std::make_shared<NameTable>();
  TensorBoardSink sink({[&] { return scratch.path(); }, names, Rank{0}, "{}"});
  const double seconds = seconds_of([&] { write_steps(sink, *names, layout_of(), steps); });
  return static_cast<double>(steps) * kRowsOfStep * kOpsOfRow / seconds;
}

template <typename Rate>
Figure rate_figure(const char* name, const char* unit, double goal, int repetitions, const std::string& how,
                   const Rate& rate) {
  std::vector<double> rates;
  for (int i = 0; i < repetitions; ++i) rates.push_back(rate());
  return median_figure(name, rates, unit, at_least(goal), how);
}

std::vector<Figure> rows_per_second(Effort effort) {
  const int repetitions = pick(effort, 2, 15);
  const auto steps = pick<std::int64_t>(effort, 20, 300);
  return {rate_figure("rows_per_s_queue", "rows/s", 5e6, repetitions,
                      "one producer, one reader, steps of 1,000 rows, 65,536 places",
                      [&] { return queue_rate(pick<std::int64_t>(effort, 100, 2000)); }),
          rate_figure(
              "rows_per_s_csv", "rows/s", 2e6, repetitions,
              "one producer, queue, writer thread and CSV files of six ops, one for each step of 1,000 rows",
              [&] { return sink_rate(make_csv, records_on_disk, steps); }),
          rate_figure(
              "rows_per_s_sqlite", "rows/s", 3e5, repetitions,
              "one producer, queue, writer thread and the SQLite database of six ops, steps of 1,000 rows",
              [&] { return sink_rate(make_sqlite, rows_in_database, steps); })};
}

std::vector<Figure> compressed_csv(Effort effort) {
  const int repetitions = pick(effort, 2, 15);
  const auto steps = pick<std::int64_t>(effort, 20, 300);
  std::vector<double> plain, compressed;
  for (int i = 0; i < repetitions; ++i) {  // in turns
    plain.push_back(sink_rate(make_csv, records_on_disk, steps));
    compressed.push_back(sink_rate(make_csv, rows_in_frames, steps, layout_of(kSixOps, true)));
  }
  const std::string what = "CSV files of steps of 1,000 rows with ";
  return {median_figure("rows_per_s_csv_zstd", compressed, "rows/s", at_least(0.45 * median_of(plain)),
                        "as rows_per_s_csv with \"compress\": \"zstd\"; the goal is 0.45 of the plain rate, "
                        "measured in turns"),
          {"csv_zstd_saves", bytes_saved(kSixOps), "times the bytes", at_least(4.5),
           what + "six ops, over compressed ones"},
          {"csv_zstd_saves_norm", bytes_saved({Op::norm}), "times the bytes", at_least(7),
           what + "the norm alone, over compressed ones"}};
}

std::vector<Figure> values_per_second(Effort effort) {
  return {rate_figure("values_per_s_tb", "values/s", 1e6, pick(effort, 2, 15),
                      "one thread, event files of six ops, steps of 1,000 rows",
                      [&] { return event_file_rate(pick<std::int64_t>(effort, 20, 500)); })};
}

// --- Alert rules.

// Nanoseconds per value, over steps with full windows. Every value is log-normal around its row's own scale.
double ns_per_value(ValueMask ops, std::uint32_t values_per_row, int steps) {
  constexpr std::uint32_t kRows = 5000;  // of a step: 1,000 parameters, 5 kinds
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal;
  std::vector<Record> rows(kRows);
  for (std::uint32_t i = 0; i < kRows; ++i) {
    rows[i].target = i;
    rows[i].kind = Kind::grad_reduced;
    rows[i].mask = ops;
  }
  AlertEvaluator evaluator;
  evaluator.set_rules({AlertRule{Anomaly::nan, 1e30}, AlertRule{Anomaly::turbulence, 1e6},
                       AlertRule{Anomaly::spike}, AlertRule{Anomaly::vanish}});
  constexpr int kWindow = 64;
  double spent = 0;
  std::size_t found = 0;
  for (int i = 0; i < kWindow + steps; ++i) {
    for (Record& row : rows) {
      for (double& value : row.values) value = std::exp(0.2 * normal(random)) * (1 + row.target);
    }
    const auto begin = Clock::now();
    const std::size_t alerts = evaluator.evaluate({}, rows).first.size();
    if (i < kWindow) continue;
    spent += seconds_since(begin);
    found += alerts;
  }
  if (found > kRows) throw std::runtime_error("healthy series raised too many alerts");
  return spent * 1e9 / (static_cast<double>(steps) * kRows * values_per_row);
}

std::vector<Figure> alert_evaluation(Effort effort) {
  const int steps = pick(effort, 10, 100);
  std::vector<double> norms, all;
  for (int i = 0; i < pick(effort, 2, 15); ++i) {
    norms.push_back(ns_per_value(bit_of(Op::norm), 1, steps));
    all.push_back(ns_per_value(kAllOps, kOpsOfRow, steps));
  }
  return {median_figure("alert_ns_per_value", norms, "ns", at_most(200),
                        "four rules, 5,000 rows a step, full windows of 64; a value of rows with six ops: " +
                            range_text(all) + "; rows of a norm alone")};
}

}  // namespace

std::vector<Bench> writing_rate() {
  return {{{"rows_per_s_queue", "rows_per_s_csv", "rows_per_s_sqlite"}, rows_per_second},
          {{"rows_per_s_csv_zstd", "csv_zstd_saves", "csv_zstd_saves_norm"}, compressed_csv},
          {{"values_per_s_tb"}, values_per_second},
          {{"alert_ns_per_value"}, alert_evaluation}};
}

}  // namespace gradmon
