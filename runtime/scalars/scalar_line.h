// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "control/step.h"

namespace gradmon {

struct NamedScalar {
  std::string name;
  double value = 0;
};

// "rank 1: step 12, 3072 samples: loss 2.34567, grad-norm 0.12": the rank only
// where there are several, the samples only where the program says. Numbers as
// in CSV, with six digits; control characters in names as '?'.
std::string scalar_line(Rank rank, int world_size, Step step, std::int64_t samples,
                        const std::vector<NamedScalar>& scalars);

}  // namespace gradmon
