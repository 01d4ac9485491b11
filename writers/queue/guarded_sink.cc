// SPDX-License-Identifier: Apache-2.0
#include "writers/queue/guarded_sink.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "control/log.h"

namespace gradmon {

GuardedSink::GuardedSink(std::unique_ptr<Sink> sink, Layout layout, Pauses pauses)
    : sink_(std::move(sink)), layout_(std::move(layout)), pauses_(pauses) {}

GuardedSink::Outcome GuardedSink::write(Step step, const std::vector<Record>& records, Time now) {
  const std::uint64_t count = records.size();
  if (failing_ && now < retry_at_) {
    lost_ += count;
    return {0, count};
  }
  SinkError error = try_write(step, records);
  if (error.text.empty()) {
    recover();
    return {count, 0};
  }
  const std::uint64_t lost = std::min(error.rows_lost, count);
  take_down(std::move(error.text));
  lost_ += lost;
  const bool kept_nothing = lost == count;
  pause_ = kept_nothing ? std::clamp(pause_ * 2, pauses_.first, pauses_.longest) : pause_.zero();
  retry_at_ = now + pause_;
  return {count - lost, lost};
}

void GuardedSink::flush() {
  try {
    if (auto done = sink_->flush(); !done) take_down(std::move(done.error().text));
  } catch (const std::exception& e) {
    take_down(e.what());
  }
}

// An empty text means that all went well.
SinkError GuardedSink::try_write(Step step, const std::vector<Record>& records) {
  try {
    if (!begun_) {
      if (auto begun = sink_->begin_revision(layout_); !begun) return {begun.error().text, records.size()};
      begun_ = true;
    }
    if (auto written = sink_->write_step(step, records); !written) return std::move(written.error());
    return {};
  } catch (const std::exception& e) {
    return {e.what(), records.size()};
  }
}

void GuardedSink::take_down(std::string error) {
  error_ = std::string(sink_->name()) + ": " + std::move(error);
  if (!std::exchange(failing_, true)) log_error(error_);
}

void GuardedSink::recover() {
  pause_ = pause_.zero();
  error_.clear();
  if (!std::exchange(failing_, false)) return;
  log_info(std::string(sink_->name()) + ": writes again; " + std::to_string(std::exchange(lost_, 0)) +
           " rows were lost");
}

}  // namespace gradmon
