// SPDX-License-Identifier: Apache-2.0
#include "writers/sinks/memory_sink.h"

#include <utility>

namespace gradmon {

MemorySink::MemorySink(std::shared_ptr<LastStep> last, bool implied)
    : last_(std::move(last)), implied_(implied) {}

tl::expected<void, SinkError> MemorySink::begin_revision(const Layout& layout) {
  layout_ = layout;
  return {};
}

tl::expected<void, SinkError> MemorySink::write_step(Step step, const std::vector<Record>& records) {
  last_->set(layout_, step, records);
  return {};
}

}  // namespace gradmon
