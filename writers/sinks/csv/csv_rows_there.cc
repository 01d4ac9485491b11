// SPDX-License-Identifier: Apache-2.0
#include "writers/sinks/csv/csv_rows_there.h"

#include <charconv>
#include <utility>

namespace gradmon {

void CsvRowsThere::take(std::string_view bytes) {
  for (const char c : bytes) {
    ++bytes_;
    if (c == '"') quoted_ = !quoted_;
    if (!quoted_ && c == '\n') {
      end_line();
    } else if (!quoted_ && c == ',') {
      end_cell();
    } else if (in_header_ || column_ < name_columns_) {
      cell_ += c;
    }
  }
}

void CsvRowsThere::end_cell() {
  if (in_header_) {
    if (cell_ == "step") step_column_ = column_;
    if (cell_ == "step" || cell_ == "micro_step") name_columns_ = column_ + 1;
  } else if (column_ < name_columns_) {
    if (column_ > 0) name_ += ',';
    name_ += cell_;
    if (column_ == step_column_) std::from_chars(cell_.data(), cell_.data() + cell_.size(), step_);
  }
  cell_.clear();
  ++column_;
}

void CsvRowsThere::end_line() {
  end_cell();
  if (!in_header_ && step_ >= 0) rows_.add(step_, std::move(name_));
  in_header_ = false;
  column_ = 0;
  step_ = -1;
  name_.clear();
  whole_bytes_ = bytes_;
}

}  // namespace gradmon
