// SPDX-License-Identifier: Apache-2.0
#include "writers/sinks/csv/csv_row_scanner.h"

#include <charconv>
#include <utility>

namespace gradmon {

void CsvRowScanner::take(std::string_view bytes) {
  for (const char c : bytes) {
    ++bytes_;
    if (c == '"') quoted_ = !quoted_;
    if (!quoted_ && c == '\n') {
      end_line();
    } else if (!quoted_ && c == ',') {
      end_cell();
    } else if (in_header_ || column_ < key_columns_ || column_ == samples_column_) {
      cell_ += c;
    }
  }
}

void CsvRowScanner::end_cell() {
  if (in_header_) {
    if (cell_ == "step") step_column_ = column_;
    if (cell_ == "samples") samples_column_ = column_;
    if (cell_ == "step" || cell_ == "micro_step") key_columns_ = column_ + 1;
  } else if (column_ < key_columns_) {
    if (column_ > 0) key_ += ',';
    key_ += cell_;
    if (column_ == step_column_) std::from_chars(cell_.data(), cell_.data() + cell_.size(), step_);
  } else if (column_ == samples_column_) {
    std::from_chars(cell_.data(), cell_.data() + cell_.size(), counted_);
  }
  cell_.clear();
  ++column_;
}

void CsvRowScanner::end_line() {
  end_cell();
  if (!in_header_ && step_ >= 0) {
    rows_.add(step_, std::move(key_));
    if (counted_ > 0) samples_[step_] = counted_;
  }
  in_header_ = false;
  column_ = 0;
  step_ = -1;
  counted_ = 0;
  key_.clear();
  whole_bytes_ = bytes_;
}

}  // namespace gradmon
