// SPDX-License-Identifier: Apache-2.0
// The weight matrix of each module.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "hooks/names/squash_name.h"
#include "hooks/names/watched_model.h"

namespace gradmon {

// Immutable.
class MatrixIndex {
 public:
  // `model` must outlive this.
  explicit MatrixIndex(const WatchedModel& model);

  // The module's 2-D parameter `weight`, else `wg`; null if it has none.
  const WatchedParameter* of(const TargetName& module) const;

 private:
  std::map<std::pair<int, std::string>, const WatchedParameter*> matrices_;
};

}  // namespace gradmon
