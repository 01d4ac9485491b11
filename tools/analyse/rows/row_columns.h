// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "tools/analyse/rows/row.h"

namespace gradmon {

// What the columns of one header mean, and the rows read by them. A value; pure.
class RowColumns {
 public:
  // An error if the titles are no header of gradmon or msprobe: "name" and "step" are missing, or a title is
  // there twice. Titles that are unknown are left out.
  static tl::expected<RowColumns, std::string> of_header(const std::vector<std::string_view>& titles);

  // Whether the cells are a header, not a row: for files that were joined.
  static bool is_header(const std::vector<std::string_view>& cells);

  // Fills all but `line` and `place`. The error says what was found and expected. A row of msprobe without a
  // tensor, whose shape is "nan", has no values.
  tl::expected<void, std::string> read(const std::vector<std::string_view>& cells, Row& row) const;

 private:
  enum class Role : std::uint8_t { vpp_stage, name, step, micro_step, shape, dtype, number, unused };
  struct Column {
    Role role = Role::unused;
    Field field = 0;  // of a number
    std::string title;
  };

  static bool read_cell(const Column& column, std::string_view cell, Row& row);

  std::vector<Column> columns_;
};

// A number as Python, pandas or C++ prints it, "nan", "inf", "True" and "False". False: it is none.
bool read_number(std::string_view text, double& value);

}  // namespace gradmon
