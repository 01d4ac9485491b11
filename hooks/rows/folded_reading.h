// SPDX-License-Identifier: Apache-2.0
// Combines the readings of several tensors into one row.
#pragma once

#include <vector>

#include "hooks/rows/reading.h"

namespace gradmon {

// Combines each statistic as its Fold in kStatistics says: least min, greatest max, root of the summed
// squared norms, means and zeros weighted by elements, sum of the nans. A NaN gives NaN. Shape and type are
// the last reading's, the time is the first reading's. Ignores absent and empty readings. If a reading is not
// applicable, the result is not applicable. The values of a `pending` reading are NaN.
Reading folded(const std::vector<Reading>& readings);

}  // namespace gradmon
