// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <unordered_map>
#include <vector>

#include "tools/gradmonctl/query/rank_database.h"
#include "writers/queue/layout.h"
#include "writers/queue/name_table.h"
#include "writers/queue/record.h"

namespace gradmon {

// Makes records of the rows of one metric in a database of a rank, which must outlive it. One thread.
class StoredRecords {
 public:
  // `names` receives the names and shapes. An error says what the metric has that this version does not know,
  // or why the database cannot be read.
  static tl::expected<StoredRecords, std::string> make(RankDatabase& from, const StoredMetric& metric,
                                                       std::int64_t rank, std::shared_ptr<NameTable> names);

  Kind kind() const { return kind_; }
  // With all statistics of the metric.
  const Layout& layout() const { return layout_; }

  // nullopt: the database does not know the row's target.
  tl::expected<std::optional<Record>, std::string> record_of(RankDatabase& from,
                                                             const RankDatabase::Row& row);

 private:
  // A statistic of the metric.
  struct Stat {
    std::uint8_t value;  // index into Record::values
    int nan_bit;
  };
  // Of a target in the steps from the first to the last.
  struct Tensor {
    std::int64_t first_step = 0;
    std::int64_t last_step = -1;
    std::uint32_t shape = 0;
    DType dtype = DType::unknown;
  };

  tl::expected<Tensor, std::string> tensor_of(const RankDatabase::Row& row);

  Kind kind_ = Kind::other;
  Layout layout_;
  std::vector<Stat> stats_;
  std::shared_ptr<NameTable> names_;
  TensorNotes notes_;
  std::unordered_map<std::int64_t, Tensor> tensors_;  // the last one of each target, by its id
};

}  // namespace gradmon
