// SPDX-License-Identifier: Apache-2.0
#include "writers/sinks/last_step.h"

namespace gradmon {

LastStep::Content LastStep::content() const {
  const std::lock_guard lock(mutex_);
  return content_;
}

void LastStep::set(const Layout& layout, Step step, const std::vector<Record>& records) {
  const std::lock_guard lock(mutex_);
  content_.layout = layout;
  content_.step = step;
  content_.records = records;
}

}  // namespace gradmon
