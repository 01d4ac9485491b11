// SPDX-License-Identifier: Apache-2.0
// Combines the readings of several tensors into one row.
#pragma once

#include <vector>

#include "hooks/rows/reading.h"

namespace gradmon {

// Combines each statistic as its Fold in kStatistics says: least min, greatest max, root of the summed
// squared norms, means and zeros weighted by elements, sum of the nans. A NaN gives NaN. Shape and type
// are those of the last reading, the time is that of the first. Absent and empty readings are ignored. If a
// reading is not applicable, the result is not applicable. Of readings that are `pending` the values are NaN.
Reading folded(const std::vector<Reading>& readings);

}  // namespace gradmon
