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

// "rank 1: step 12, 3072 samples: loss 2.34567, grad-norm 0.12". Skips the rank if only one exists, and the
// samples if they are 0. Numbers as in CSV, with six decimals; control characters in names become '?'.
std::string scalar_line(Rank rank, int world_size, Step step, std::int64_t samples,
                        const std::vector<NamedScalar>& scalars);

}  // namespace gradmon
