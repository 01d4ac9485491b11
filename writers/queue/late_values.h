// SPDX-License-Identifier: Apache-2.0
// Values that were still being computed, on a GPU, when their records were pushed.
#pragma once

#include <algorithm>
#include <vector>

#include "writers/queue/record.h"

namespace gradmon {

// In Record::mask: the record's values come from its step's LateValues; values[0] has its index there.
inline constexpr ValueMask kLate = ValueMask{1} << 15U;
static_assert(kValues < 15);

// One thread at a time, any thread.
class LateValues {
 public:
  virtual ~LateValues() = default;

  // True if complete() need not wait. Does not wait.
  virtual bool ready() noexcept = 0;
  // Fills in the values of a record that has kLate, and clears that bit. Waits until they are ready. False:
  // it is no row; if the bit remains, its values cannot be had.
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
