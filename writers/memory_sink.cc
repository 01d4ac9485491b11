// SPDX-License-Identifier: Apache-2.0
#include "writers/memory_sink.h"

#include <utility>

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

MemorySink::MemorySink(std::shared_ptr<LastStep> last) : last_(std::move(last)) {}

tl::expected<void, SinkError> MemorySink::begin_revision(const Layout& layout) {
  layout_ = layout;
  return {};
}

tl::expected<void, SinkError> MemorySink::write_step(Step step, const std::vector<Record>& records) {
  last_->set(layout_, step, records);
  return {};
}

}  // namespace gradmon
