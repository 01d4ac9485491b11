// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tools/convert/rank_rows.h"
#include "writers/queue/name_table.h"
#include "writers/queue/record.h"
#include "writers/queue/sink.h"

namespace gradmon {

// Makes records from the rows of one kind and rank, like the job's own sinks. One thread.
class RowRecords {
 public:
  // `names` receives the names, and as many shapes as intern_shape() takes.
  RowRecords(Kind kind, std::shared_ptr<NameTable> names);

  // The layout of all rows so far: it has every statistic that a row has.
  const Layout& layout() const { return layout_; }
  // Adds the row's missing columns to the layout. Returns true if it added any.
  bool extend_layout(const Row& row);

  // Returns the record of the last row of `rows`.
  Record record_of(const RankRows& rows, const Row& row);

 private:
  // A value of this kind in its own column.
  struct Feature {
    Field field;
    std::uint8_t value;  // index into Record::values
  };
  // The newest values of a target's rows.
  struct Target {
    std::uint32_t id = 0;  // of its name; 0: none yet
    std::uint32_t shape_id = 0;
    const std::string* shape = nullptr;  // its text in the table; null: none yet
    DType dtype = DType::unknown;
  };

  Target& target_of(const RankRows& rows, const Row& row);

  const Kind kind_;
  const std::shared_ptr<NameTable> names_;
  std::vector<Feature> features_;
  Layout layout_;
  std::uint32_t ops_ = 0;  // those of the layout, by Field
  std::vector<Target> targets_;
};

}  // namespace gradmon
