// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "tools/analyse/rows/row.h"

namespace gradmon {

// The columns of one header, and the rows read by them. A value; pure. Older releases of msprobe wrote
// "param_name" or "module_name" in place of "name", and "input.norm" and "output.norm" (for gradients
// "input_grad.norm") in one row of a module: such a row is read as two, of "{module}.input" and
// "{module}.output".
class RowColumns {
 public:
  // The error: the titles are no header of gradmon or msprobe, because "name" or "step" is missing, or two
  // titles mean the same. Skips unknown titles.
  static tl::expected<RowColumns, std::string> of_header(const std::vector<std::string_view>& titles);

  // True if the cells are a header, not a row: for files that were joined.
  static bool is_header(const std::vector<std::string_view>& cells);

  // The number of rows in the cells of one line.
  std::size_t rows_of_line() const { return parts_.empty() ? 1 : parts_.size(); }

  // Fills all but `line` and `place`. `index`: of the row, below rows_of_line(). `name` stores the row's name
  // if it is not the text of a cell. The error names the found and the expected value. A row of msprobe
  // without a tensor, whose shape is "nan", has no values.
  tl::expected<void, std::string> read(const std::vector<std::string_view>& cells, Row& row,
                                       std::size_t index, std::string& name) const;

 private:
  enum class Role : std::uint8_t { vpp_stage, name, step, micro_step, shape, dtype, number, unused };
  struct Column {
    Role role = Role::unused;
    Field field = 0;          // of a number
    std::string_view part{};  // of a number: its part of the module; "": the row is of one
    std::string title;
  };

  static Column column_of(std::string_view title);
  static bool read_cell(const Column& column, std::string_view cell, Row& row);

  std::vector<Column> columns_;
  std::vector<std::string_view> parts_;  // named by the columns: "input", "output"
};

// Reads a number as Python, pandas or C++ prints it, "nan", "inf", "True" and "False". False: another text.
bool read_number(std::string_view text, double& value);

}  // namespace gradmon
