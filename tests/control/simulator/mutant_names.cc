// SPDX-License-Identifier: Apache-2.0
#include "tests/control/simulator/mutant_names.h"

namespace gradmon {

const std::vector<NamedMutant>& all_mutants() {
  static const std::vector<NamedMutant> all{
      {"least_fence", Mutant::least_fence},
      {"no_register", Mutant::no_register},
      {"ready_without_fence", Mutant::ready_without_fence},
      {"no_second_look", Mutant::no_second_look},
      {"forgets_on_return", Mutant::forgets_on_return},
      {"leaves_open_on_return", Mutant::leaves_open_on_return},
      {"takes_a_second", Mutant::takes_a_second},
      {"answers_anew", Mutant::answers_anew},
      {"verdict_without_plan", Mutant::verdict_without_plan},
      {"silent_counts_as_gone", Mutant::silent_counts_as_gone},
      {"one_register", Mutant::one_register},
  };
  return all;
}

}  // namespace gradmon
