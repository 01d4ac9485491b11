// SPDX-License-Identifier: Apache-2.0
// Makes the output of a large job, to measure the commands of `gradmonctl analyse` on it:
//   analyse_make_rows DIRECTORY ROWS [STEPS_A_FILE]
// 4 ranks, gradients before and after reduction of 500 parameters, six statistics. The last step has a NaN.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "writers/sinks/csv_sink.h"

namespace gradmon {
namespace {

constexpr int kRanks = 4;
constexpr int kParameters = 500;

class LargeRank {
 public:
  LargeRank(std::filesystem::path directory, std::int64_t steps_a_file)
      : directory_(std::move(directory)), sink_([this] { return directory_; }, names_) {
    Layout layout;
    layout.ops = {Op::norm, Op::min, Op::max, Op::mean, Op::nans, Op::zeros};
    layout.step_count_per_record = steps_a_file;
    if (!sink_.begin_revision(layout)) std::exit(1);
    for (const Kind kind : {Kind::grad_unreduced, Kind::grad_reduced}) {
      for (int i = 0; i < kParameters; ++i) add_row(kind, i);
    }
  }

  bool write(std::int64_t step, double of_first) {
    for (Record& row : rows_) {
      row.step = step;
      for (const Op op : {Op::norm, Op::min, Op::max, Op::mean})
        row.values[static_cast<std::size_t>(op)] = normal_(random_) * (op == Op::norm ? 10 : 0.1);
    }
    rows_.front().values[static_cast<std::size_t>(Op::norm)] = of_first;
    return sink_.write_step(Step{step}, rows_).has_value();
  }

 private:
  void add_row(Kind kind, int parameter) {
    Record row;
    row.kind = kind;
    row.revision = 1;
    row.sequence = rows_.size();
    row.target = names_->intern("module.layers." + std::to_string(parameter / 10) +
                                ".self_attention.weight_" + std::to_string(parameter % 10));
    row.shape = names_->intern("[4096, 1024]");
    row.dtype = DType::bfloat16;
    row.mask = (1U << kOps) - 1;
    rows_.push_back(row);
  }

  const std::filesystem::path directory_;
  const std::shared_ptr<NameTable> names_ = std::make_shared<NameTable>();
  CsvSink sink_;
  std::vector<Record> rows_;
  std::mt19937_64 random_{1};
  std::normal_distribution<double> normal_;
};

}  // namespace
}  // namespace gradmon

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: analyse_make_rows DIRECTORY ROWS [STEPS_A_FILE]\n");
    return 2;
  }
  const std::int64_t steps = std::atoll(argv[2]) / (gradmon::kRanks * 2 * gradmon::kParameters);
  const std::int64_t steps_a_file = argc > 3 ? std::atoll(argv[3]) : 1;
  for (int number = 0; number < gradmon::kRanks; ++number) {
    const std::string name = "Nov24_12-04-37-rank" + std::to_string(number) + "-1a2b3c4d";
    gradmon::LargeRank rank(std::filesystem::path(argv[1]) / name, steps_a_file);
    for (std::int64_t step = 0; step < steps; ++step) {
      if (!rank.write(step, step + 1 == steps ? std::nan("") : 1.0)) return 1;
    }
  }
  return 0;
}
