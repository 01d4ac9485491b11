// SPDX-License-Identifier: Apache-2.0
#include "writers/sinks/late_sink.h"

namespace gradmon {

tl::expected<void, SinkError> LateSink::begin_revision(const Layout& layout) {
  layout_ = layout;
  return {};
}

tl::expected<void, SinkError> LateSink::write_step(Step step, const std::vector<Record>& records) {
  if (!sink_) {
    sink_ = make_();
    sink_->report_parts(on_part_);
    if (auto begun = sink_->begin_revision(layout_); !begun) return begun;
  }
  return sink_->write_step(step, records);
}

tl::expected<void, SinkError> LateSink::flush() {
  return sink_ ? sink_->flush() : tl::expected<void, SinkError>{};
}

}  // namespace gradmon
