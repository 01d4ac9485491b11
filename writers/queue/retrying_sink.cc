// SPDX-License-Identifier: Apache-2.0
#include "writers/queue/retrying_sink.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "control/log.h"

namespace gradmon {

RetryingSink::RetryingSink(std::unique_ptr<Sink> sink, Layout layout, Pauses pauses)
    : sink_(std::move(sink)), layout_(std::move(layout)), pauses_(pauses) {}

RetryingSink::Outcome RetryingSink::write(Step step, const std::vector<Record>& records,
                                          const std::vector<Histogram>& histograms, Time now) {
  static const std::vector<Histogram> none;
  const std::vector<Histogram>& kept = sink_->keeps_histograms() ? histograms : none;
  const std::uint64_t count = records.size() + kept.size();
  if (count == 0 && !histograms.empty()) return {};
  if (failing_ && now < retry_at_) {
    lost_ += count;
    return {0, count};
  }
  SinkError error = try_write(step, records, kept);
  if (error.text.empty()) {
    recover();
    return {count, 0};
  }
  const std::uint64_t lost = std::min(error.rows_lost, count);
  mark_failed(std::move(error.text));
  lost_ += lost;
  const bool kept_nothing = lost == count;
  pause_ = kept_nothing ? std::clamp(pause_ * 2, pauses_.first, pauses_.longest) : pause_.zero();
  retry_at_ = now + pause_;
  return {count - lost, lost};
}

void RetryingSink::flush() {
  try {
    if (auto done = sink_->flush(); !done) mark_failed(std::move(done.error().text));
  } catch (const std::exception& e) {
    mark_failed(e.what());
  }
}

// An empty text means success. After an error with the records, the histograms are lost, too.
SinkError RetryingSink::try_write(Step step, const std::vector<Record>& records,
                                  const std::vector<Histogram>& histograms) {
  const std::uint64_t all = records.size() + histograms.size();
  try {
    if (!revision_begun_) {
      if (auto begun = sink_->begin_revision(layout_); !begun) return {begun.error().text, all};
      revision_begun_ = true;
    }
    if (!records.empty() || histograms.empty()) {
      if (auto written = sink_->write_step(step, records); !written)
        return {std::move(written.error().text), written.error().rows_lost + histograms.size()};
    }
    if (!histograms.empty()) {
      if (auto written = sink_->write_histograms(step, histograms); !written)
        return std::move(written.error());
    }
    return {};
  } catch (const std::exception& e) {
    return {e.what(), all};
  }
}

void RetryingSink::mark_failed(std::string error) {
  error_ = std::string(sink_->name()) + ": " + std::move(error);
  if (!std::exchange(failing_, true)) log_error(error_);
}

void RetryingSink::recover() {
  pause_ = pause_.zero();
  error_.clear();
  if (!std::exchange(failing_, false)) return;
  log_info(std::string(sink_->name()) + ": writing works again; " + std::to_string(std::exchange(lost_, 0)) +
           " rows were lost");
}

}  // namespace gradmon
