// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "control/agree/mutant.h"

namespace gradmon {

// As they are called on the command line, and in tests; without "none", and without "passes_over", which
// no script of the simulator brings out.
struct NamedMutant {
  std::string name;
  Mutant mutant = Mutant::none;
};
const std::vector<NamedMutant>& all_mutants();

}  // namespace gradmon
