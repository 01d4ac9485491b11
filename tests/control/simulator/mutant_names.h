// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "control/agree/mutant.h"

namespace gradmon {

struct NamedMutant {
  std::string name;  // on the command line
  Mutant mutant = Mutant::none;
};
// All mutants of mutant.h except `none` and `passes_over`, which shows in no script of the simulator.
const std::vector<NamedMutant>& all_mutants();

}  // namespace gradmon
