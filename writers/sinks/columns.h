// SPDX-License-Identifier: Apache-2.0
// The columns of each kind of row, for every format. Pure.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "writers/queue/record.h"
#include "writers/queue/sink.h"

namespace gradmon {

// One column: its title and the source of its value.
struct RowColumn {
  enum class Source : std::uint8_t { vpp_stage, name, step, micro_step, number, count, shape, dtype };
  Source source;
  const char* title;
  std::uint8_t value = 0;  // of number and count: index into Record::values

  // True if the record has a value for this column. Only for number and count.
  bool is_in(const Record& record) const { return (record.mask >> value & 1U) != 0; }
};

// A layout with all statistics, in the order of Op, without the marks of samples.
Layout layout_of_all_ops();

// Empty for kinds of histograms, which are no rows.
std::vector<RowColumn> columns_of(Kind kind, const Layout& layout);

// True if rows of that kind have a micro step.
bool has_micro_step(Kind kind, const Layout& layout);

// msprobe's name of the kind, as in tags: "post_grad".
const char* task_of(Kind kind, const Layout& layout);

// The values of a record, each with the title of its column; statistics in the order of Op, then the marks of
// a sample.
std::vector<std::pair<const char*, double>> titled_values(const Record& record);

}  // namespace gradmon
