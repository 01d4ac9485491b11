// SPDX-License-Identifier: Apache-2.0
#include "writers/sinks/last_step.h"

namespace gradmon {

LastStep::Content LastStep::content() const {
  const std::lock_guard lock(mutex_);
  return content_;
}

void LastStep::set(const Layout& layout, Step step, const std::vector<Record>& records) {
  const std::lock_guard lock(mutex_);
  if (content_.step != step || content_.layout.revision != layout.revision) content_.records.clear();
  content_.layout = layout;
  content_.step = step;
  content_.records.insert(content_.records.end(), records.begin(), records.end());
}

}  // namespace gradmon
