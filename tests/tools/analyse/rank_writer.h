// SPDX-License-Identifier: Apache-2.0
// Makes the output of small jobs for tests.
#pragma once

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "writers/sinks/csv_sink.h"

namespace gradmon {

// A row with norm and nans, of a tensor [2, 2] of float32.
struct TestRow {
  Kind kind = Kind::grad_reduced;
  std::string name;
  double norm = 1;
  int micro_step = 0;
  int vpp_stage = 0;
};

// Writes the files of one rank as a job does, through the CSV sink.
class RankWriter {
 public:
  RankWriter(const std::filesystem::path& output_dir, int rank, const std::string& id = "1a2b3c4d",
             const std::string& time = "Nov24_12-04-37")
      : directory_(output_dir / (time + "-rank" + std::to_string(rank) + "-" + id)) {
    begin(layout_);
  }

  const std::filesystem::path& directory() const { return directory_; }
  Layout layout() const { return layout_; }
  void begin(const Layout& layout) {
    layout_ = layout;
    sink_ = std::make_unique<CsvSink>([this] { return directory_; }, names_);
    check(sink_->begin_revision(layout));
  }

  // `rows`: by kind, in the order of Kind.
  void write(std::int64_t step, const std::vector<TestRow>& rows) {
    std::vector<Record> records;
    for (const TestRow& row : rows) {
      Record record;
      record.kind = row.kind;
      record.step = step;
      record.sequence = records.size();
      record.target = names_->intern(row.name, row.vpp_stage);
      record.shape = names_->intern("[2, 2]");
      record.dtype = DType::float32;
      record.micro_step = row.micro_step;
      record.values[static_cast<std::size_t>(Op::norm)] = row.norm;
      record.values[static_cast<std::size_t>(Op::nans)] = std::isnan(row.norm) ? 1 : 0;
      record.mask = static_cast<ValueMask>(bit_of(Op::norm) | bit_of(Op::nans));
      records.push_back(record);
    }
    check(sink_->write_step(Step{step}, records));
  }

 private:
  template <typename Result>
  static void check(const Result& result) {
    if (!result) throw std::runtime_error(result.error().text);
  }
  static Layout two_ops() {
    Layout layout;
    layout.ops = {Op::norm, Op::nans};
    return layout;
  }

  const std::filesystem::path directory_;
  Layout layout_ = two_ops();
  const std::shared_ptr<NameTable> names_ = std::make_shared<NameTable>();
  std::unique_ptr<CsvSink> sink_;
};

}  // namespace gradmon
