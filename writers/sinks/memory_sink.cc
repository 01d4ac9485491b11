// SPDX-License-Identifier: Apache-2.0
#include "writers/sinks/memory_sink.h"

#include <utility>

namespace gradmon {

LastStep::Content LastStep::content() const {
  const std::lock_guard lock(mutex_);
  return content_;
}

void LastStep::set(const Layout& layout, Step step, const RecordBatch& records) {
  const std::lock_guard lock(mutex_);
  if (content_.step != step || content_.layout.revision != layout.revision) content_.records.clear();
  content_.layout = layout;
  content_.step = step;
  for (const Record& record : records) content_.records.push_back(record);
}

MemorySink::MemorySink(std::shared_ptr<LastStep> last, bool implied)
    : last_(std::move(last)), implied_(implied) {}

tl::expected<void, SinkError> MemorySink::begin_revision(const Layout& layout) {
  layout_ = layout;
  return {};
}

tl::expected<void, SinkError> MemorySink::write_step(Step step, const RecordBatch& records) {
  last_->set(layout_, step, records);
  return {};
}

}  // namespace gradmon
