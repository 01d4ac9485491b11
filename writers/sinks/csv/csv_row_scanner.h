// SPDX-License-Identifier: Apache-2.0
// Finds the rows of a CSV file of this format (FORMAT.md), and their numbers of samples. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "writers/sinks/known_rows.h"
#include "writers/sinks/resumed_samples.h"

namespace gradmon {

// Gets a file's bytes in order, in parts of any size. The columns follow from the file's own header, so the
// file may belong to another revision.
class CsvRowScanner {
 public:
  void take(std::string_view bytes);

  // The rows so far. The key of a row is its text up to the step and micro step. Without a partial row after
  // the last line end. Empty for a file without a column `step`.
  const KnownRows& rows() const { return rows_; }
  // From the column `samples`; without steps that have no number.
  const SamplesByStep& samples() const { return samples_; }
  // Bytes through the last line end outside quotes.
  std::uint64_t whole_bytes() const { return whole_bytes_; }

 private:
  static constexpr std::size_t kNone = ~std::size_t{0};

  void end_cell();
  void end_line();

  KnownRows rows_;
  SamplesByStep samples_;
  std::uint64_t bytes_ = 0;
  std::uint64_t whole_bytes_ = 0;
  bool quoted_ = false;
  bool in_header_ = true;
  std::size_t step_column_ = kNone;
  std::size_t samples_column_ = kNone;
  std::size_t key_columns_ = 0;  // columns up to step or micro_step
  // The current line.
  std::size_t column_ = 0;
  std::string cell_;  // only if needed
  std::string key_;
  std::int64_t step_ = -1;
  std::int64_t counted_ = 0;  // samples; 0: none
};

}  // namespace gradmon
