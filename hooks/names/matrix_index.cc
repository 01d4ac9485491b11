// SPDX-License-Identifier: Apache-2.0
#include "hooks/names/matrix_index.h"

namespace gradmon {

MatrixIndex::MatrixIndex(const WatchedModel& model) {
  for (const WatchedParameter& parameter : model.parameters) {
    if (parameter.tensor->defined() && parameter.tensor->dim() == 2)
      matrices_.emplace(std::pair(parameter.vpp_stage, parameter.name), &parameter);
  }
}

const WatchedParameter* MatrixIndex::of(const TargetName& module) const {
  const std::string start = module.name.empty() ? "" : module.name + ".";
  for (const char* own : {"weight", "wg"}) {
    const auto matrix = matrices_.find({module.vpp_stage, start + own});
    if (matrix != matrices_.end()) return matrix->second;
  }
  return nullptr;
}

}  // namespace gradmon
