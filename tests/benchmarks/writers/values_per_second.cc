// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/benchmarks/benches.h"
#include "tests/benchmarks/measure/range.h"
#include "tests/benchmarks/measure/scratch_job.h"
#include "writers/sinks/tensorboard/tensorboard_sink.h"

namespace gradmon {
namespace {

constexpr std::size_t kRowsOfStep = 1000;
constexpr std::size_t kOpsOfRow = 6;

// The rows of one step of a model with a thousand parameters.
std::vector<Record> rows_of_step(NameTable& names) {
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal;
  std::vector<Record> rows(kRowsOfStep);
  for (std::size_t i = 0; i < kRowsOfStep; ++i) {
    Record& row = rows[i];
    row.revision = 1;
    row.sequence = i;
    row.kind = Kind::grad_reduced;
    row.target =
        names.intern("layers." + std::to_string(i / 10) + ".mlp.fc" + std::to_string(i % 10) + ".weight");
    for (std::size_t op = 0; op < kOpsOfRow; ++op) row.values[op] = normal(random);
    row.mask = (1U << kOpsOfRow) - 1;
  }
  return rows;
}

// Values per second of one thread, from the first row until all are in their files.
double event_file_rate(std::int64_t steps) {
  const ScratchJob scratch("{}");
  const auto names = std::make_shared<NameTable>();
  std::vector<Record> rows = rows_of_step(*names);
  TensorBoardSink sink({[&] { return scratch.config().parent_path(); }, names, Rank{0}, "{}"});
  Layout layout;
  layout.ops = {Op::norm, Op::min, Op::max, Op::mean, Op::nans, Op::zeros};
  if (!sink.begin_revision(layout)) throw std::runtime_error("the sink does not begin");
  const auto begin = std::chrono::steady_clock::now();
  for (std::int64_t step = 0; step < steps; ++step) {
    for (Record& row : rows) row.step = step;
    if (auto written = sink.write_step(Step{step}, rows); !written)
      throw std::runtime_error(written.error().text);
  }
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  return static_cast<double>(steps) * kRowsOfStep * kOpsOfRow / taken.count();
}

std::vector<Figure> measure(Effort effort) {
  const bool quick = effort == Effort::quick;
  const int repetitions = quick ? 2 : 15;
  std::vector<double> rates;
  for (int i = 0; i < repetitions; ++i) rates.push_back(event_file_rate(quick ? 20 : 500));
  const Range range = range_of(rates);
  Figure figure;
  figure.name = "values_per_s_tb";
  figure.value = range.median;
  figure.unit = "values/s";
  figure.goal = Goal{Goal::Sense::at_least, 1e6};
  figure.how = "one thread, event files of six ops, steps of 1,000 rows; minimum, median and maximum of " +
               std::to_string(repetitions) + ": " + text_of(range);
  return {figure};
}

}  // namespace

Bench values_per_second() { return {{"values_per_s_tb"}, measure}; }

}  // namespace gradmon
