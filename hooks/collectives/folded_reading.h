// SPDX-License-Identifier: Apache-2.0
// Several tensors that make one row.
#pragma once

#include <vector>

#include "hooks/rows/reading.h"

namespace gradmon {

// Min of the mins, max of the maxes, root of the summed squared norms, means and
// zeros weighted by elements, sum of the nans; a NaN stays one. Shape and type are
// those of the last. Absent and empty readings add nothing; one without numbers
// makes the whole without. No reading is `pending`.
Reading folded(const std::vector<Reading>& readings);

}  // namespace gradmon
