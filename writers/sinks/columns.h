// SPDX-License-Identifier: Apache-2.0
// Which columns the rows of a kind have under a layout, whatever they are written as. Pure.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "writers/queue/layout.h"
#include "writers/queue/record.h"

namespace gradmon {

// What a column holds, and which of the record's values.
struct RowColumn {
  enum class Source : std::uint8_t { vpp_stage, name, step, micro_step, number, count, shape, dtype };
  Source source;
  const char* title;
  std::uint8_t value = 0;  // of number and count: index into Record::values

  // Whether the record has a value for this column of numbers or counts.
  bool is_in(const Record& record) const { return (record.mask >> value & 1U) != 0; }
};

std::vector<RowColumn> columns_of(Kind kind, const Layout& layout);

// Whether rows of that kind tell micro steps apart.
bool has_micro_step(Kind kind, const Layout& layout);

// A record's values under the titles of their columns; those it has, of all ops
// in the order of Op.
std::vector<std::pair<const char*, double>> titled_values(const Record& record);

}  // namespace gradmon
