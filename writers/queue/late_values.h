// SPDX-License-Identifier: Apache-2.0
// Values that were still being computed, on a GPU, when their records were pushed.
#pragma once

#include <algorithm>
#include <vector>

#include "writers/queue/record.h"

namespace gradmon {

// In Record::mask: the record's values come from the LateValues of its step; values[0] says which.
inline constexpr ValueMask kLate = ValueMask{1} << 15U;
static_assert(kValues < 15);

// One thread at a time, any thread.
class LateValues {
 public:
  virtual ~LateValues() = default;

  // Whether complete() need not wait. Does not wait.
  virtual bool ready() noexcept = 0;
  // Fills in the values of a record that has kLate, and takes that bit away. Waits if they are not ready.
  // False: it is no row; with the bit left, because its values cannot be had.
  virtual bool complete(Record& record) noexcept = 0;
};

// Completes all records, and removes those without values. Does nothing if `late` is null.
inline void complete_records(std::vector<Record>& records, LateValues* late) {
  if (late == nullptr) return;
  const auto without_values = [&](Record& record) {
    return (record.mask & kLate) != 0 && !late->complete(record);
  };
  records.erase(std::remove_if(records.begin(), records.end(), without_values), records.end());
}

}  // namespace gradmon
