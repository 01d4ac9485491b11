// SPDX-License-Identifier: Apache-2.0
// The part of a plan that sinks need: columns, decimals, steps per file. A value.
#pragma once

#include <cstdint>
#include <vector>

#include "control/step.h"
#include "control/vocabulary.h"

namespace gradmon {

// Selects the form of the tags in event files (FORMAT.md).
enum class TagForm : std::uint8_t { gradmon, msprobe };

struct Layout {
  Revision revision;
  std::vector<Op> ops{Op::norm};              // columns, in the configured order, without duplicates
  int ndigits = 6;                            // decimals in CSV
  int digits = 0;                             // significant digits in CSV instead; 0: uses ndigits
  std::int64_t step_count_per_record = 1;     // steps of one CSV file, at least 1
  bool micro_step_in_grad_unreduced = false;  // monitor_mbs_grad
  TagForm tags = TagForm::gradmon;
};

}  // namespace gradmon
