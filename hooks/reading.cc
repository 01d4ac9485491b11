// SPDX-License-Identifier: Apache-2.0
#include "hooks/reading.h"

#include <stdexcept>

namespace gradmon {

void Reading::take(const at::Tensor& tensor, double eps, const std::string& name, HookFuse& fuse) noexcept {
  present = false;
  fuse.guard(name, [&] {
    const auto taken = tensor_stats(tensor, eps);
    if (!taken) throw std::runtime_error(taken.error());
    stats = *taken;
    if (stats.outcome == TensorStats::Outcome::measured)
      sizes.assign(tensor.sizes().begin(), tensor.sizes().end());
    present = true;
  });
}

void forget(std::vector<Reading>& readings) {
  for (Reading& reading : readings) reading.present = false;
}

}  // namespace gradmon
