// SPDX-License-Identifier: Apache-2.0
#include "writers/flight/flight_recorder.h"

#include <algorithm>
#include <utility>

#include "control/log.h"

namespace gradmon {
namespace {

std::function<std::filesystem::path()> flight_directory(std::function<std::filesystem::path()> run) {
  return [run = std::move(run)] { return run() / "flight"; };
}

}  // namespace

FlightRecorder::FlightRecorder(std::function<std::filesystem::path()> directory,
                               std::shared_ptr<const NameTable> names, const Limits& limits)
    : directory_(flight_directory(std::move(directory))),
      limits_(limits),
      ring_(limits.rows_kept),
      sink_(directory_, std::move(names), Resume::yes) {}

void FlightRecorder::begin(std::int64_t keep_last, const Layout& layout) {
  ring_.keep_at_most(keep_last);
  note_lost();
  Layout wanted;
  wanted.revision = layout.revision;
  wanted.ops = {Op::norm, Op::nans};
  wanted.ndigits = layout.ndigits;
  wanted.digits = layout.digits;
  wanted.step_count_per_record = kStepsOfAFile;
  sink_ready_ = sink_ready_ && wanted.ndigits == layout_.ndigits && wanted.digits == layout_.digits;
  layout_ = std::move(wanted);
}

void FlightRecorder::keep(Step step, const std::vector<Record>& records) {
  ring_.add(step, records);
  note_lost();
}

std::optional<FileToWrite> FlightRecorder::on_alert(Step step) {
  alerted_ = step;
  if (ring_.steps() == 0) return std::nullopt;
  if (written_ >= limits_.rows_written) {
    if (!full_.exchange(true))
      log_warn("the flight recorder has written " + std::to_string(written_) +
               " rows: later alerts write no more");
    return std::nullopt;
  }
  ring_.mark_all_due();
  if (!write_.expired()) return std::nullopt;
  const auto token = std::make_shared<bool>(true);
  write_ = token;
  return FileToWrite{[self = shared_from_this(), token] { return self->write(); }};
}

tl::expected<void, std::string> FlightRecorder::write() {
  if (!ring_.has_due()) return {};
  const Step first = ring_.oldest();
  const Step last = ring_.newest_due();
  const auto rows = write_due_rows();
  if (!rows) return tl::unexpected(rows.error());
  if (writes_logged_ == kMostWritesLogged) return {};
  log_info("flight recorder: steps " + std::to_string(first.value) + " to " + std::to_string(last.value) +
           " (" + std::to_string(*rows) + " rows) written to " + directory_().string() +
           (++writes_logged_ == kMostWritesLogged ? "; later writes are not logged" : ""));
  return {};
}

// A file has all rows of a step and kind, or none of them, so a retry does not write a row twice.
tl::expected<std::uint64_t, std::string> FlightRecorder::write_due_rows() {
  if (!sink_ready_) {
    if (auto begun = sink_.begin_revision(layout_); !begun) return tl::unexpected(begun.error().text);
    sink_ready_ = true;
  }
  std::uint64_t rows = 0;
  while (ring_.has_due()) {
    const std::vector<Record> records = ring_.oldest_rows();
    if (auto written = sink_.write_step(ring_.oldest(), records); !written)
      return tl::unexpected(written.error().text);
    ring_.remove_oldest_rows();
    rows += records.size();
    written_ += records.size();
    if (should_continue_ && !should_continue_())
      return tl::unexpected<std::string>("flight recorder: nobody waits for the rest any more");
  }
  return rows;
}

void FlightRecorder::note_lost() { lost_ += ring_.lost() - std::exchange(lost_in_ring_, ring_.lost()); }

FlightRecorder::Counts FlightRecorder::counts() const { return {written_, lost_, full_}; }

}  // namespace gradmon
