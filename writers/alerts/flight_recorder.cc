// SPDX-License-Identifier: Apache-2.0
#include "writers/alerts/flight_recorder.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "control/log.h"

namespace gradmon {
namespace {

// The two values that a row keeps: indices into Record::values.
std::array<std::size_t, 2> kept_values(Kind kind) {
  if (kind == Kind::scalar)
    return {static_cast<std::size_t>(Column::samples), static_cast<std::size_t>(Column::value)};
  return {static_cast<std::size_t>(Op::norm), static_cast<std::size_t>(Op::nans)};
}

std::function<std::filesystem::path()> flight_directory(std::function<std::filesystem::path()> run) {
  return [run = std::move(run)] { return run() / "flight"; };
}

}  // namespace

void FlightRing::keep_at_most(std::int64_t steps) {
  most_steps_ = static_cast<std::size_t>(std::max<std::int64_t>(steps, 0));
  make_room();
  if (most_steps_ == 0) spare_ = {};
}

FlightRing::Row FlightRing::to_row(const Record& record) {
  Row row{record.sequence, {}, record.target, record.shape, record.kind, record.dtype, 0};
  const auto places = kept_values(record.kind);
  for (std::size_t i = 0; i < places.size(); ++i) {
    const bool valid = record.kind == Kind::grad_reduced || (record.mask >> places[i] & 1U) != 0;
    if (!valid) continue;
    row.values[i] = record.values[places[i]];
    row.valid = static_cast<std::uint8_t>(row.valid | 1U << i);
  }
  return row;
}

void FlightRing::add(Step step, const RecordBatch& records) {
  if (most_steps_ == 0) return;
  const bool joins = !steps_.empty() && steps_.back().step == step;
  if (!joins) {
    steps_.push_back({step, std::move(spare_)});
    spare_ = {};
  }
  std::vector<Row>& rows = steps_.back().rows;
  const std::size_t before = rows.size();
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (records.kind(i) != Kind::grad_reduced && records.kind(i) != Kind::scalar) continue;
    if (const Row row = to_row(records[i]); row.valid != 0) rows.push_back(row);
  }
  rows_ += rows.size() - before;
  const auto comes_first = [](const Row& a, const Row& b) {
    return std::tie(a.kind, a.sequence) < std::tie(b.kind, b.sequence);
  };
  if (!std::is_sorted(rows.begin(), rows.end(), comes_first))
    std::stable_sort(rows.begin(), rows.end(), comes_first);
  if (rows.empty()) drop_newest_step();
  make_room();
}

void FlightRing::drop_newest_step() {
  spare_.swap(steps_.back().rows);
  steps_.pop_back();
  due_ = std::min(due_, steps_.size());
}

void FlightRing::make_room() {
  while (steps_.size() > most_steps_ || (rows_ > most_rows_ && steps_.size() > 1)) drop_oldest_step();
}

void FlightRing::drop_oldest_step() {
  KeptStep& oldest = steps_.front();
  rows_ -= oldest.rows.size();
  if (due_ > 0) {
    lost_ += oldest.rows.size();
    --due_;
  }
  oldest.rows.clear();
  if (spare_.capacity() < oldest.rows.capacity()) spare_.swap(oldest.rows);
  steps_.pop_front();
}

std::size_t FlightRing::rows_of_first_kind() const {
  const std::vector<Row>& rows = steps_.front().rows;
  const auto other = [&](const Row& row) { return row.kind != rows.front().kind; };
  return static_cast<std::size_t>(std::find_if(rows.begin(), rows.end(), other) - rows.begin());
}

RecordBatch FlightRing::oldest_rows() const {
  const KeptStep& oldest = steps_.front();
  RecordBatch records;
  const std::size_t count = rows_of_first_kind();
  for (std::size_t at = 0; at < count; ++at) {
    const Row& row = oldest.rows[at];
    Record record;
    record.step = oldest.step.value;
    record.sequence = row.sequence;
    record.target = row.target;
    record.shape = row.shape;
    record.kind = row.kind;
    record.dtype = row.dtype;
    const auto places = kept_values(row.kind);
    for (std::size_t i = 0; i < places.size(); ++i) {
      if ((row.valid >> i & 1U) == 0) continue;
      record.values[places[i]] = row.values[i];
      record.mask = static_cast<ValueMask>(record.mask | 1U << places[i]);
    }
    records.push_back(record);
  }
  return records;
}

void FlightRing::remove_oldest_rows() {
  std::vector<Row>& rows = steps_.front().rows;
  const std::size_t count = rows_of_first_kind();
  rows.erase(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(count));
  rows_ -= count;
  if (!rows.empty()) return;
  if (due_ > 0) --due_;
  steps_.pop_front();
}

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

void FlightRecorder::keep(Step step, const RecordBatch& records) {
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
    const RecordBatch records = ring_.oldest_rows();
    if (auto written = sink_.write_step(ring_.oldest(), records); !written)
      return tl::unexpected(written.error().text);
    ring_.remove_oldest_rows();
    rows += records.size();
    written_ += records.size();
    if (should_continue_ && !should_continue_())
      return tl::unexpected<std::string>("flight recorder: write cancelled, the writer was stopped");
  }
  return rows;
}

void FlightRecorder::note_lost() { lost_ += ring_.lost() - std::exchange(lost_in_ring_, ring_.lost()); }

FlightRecorder::Counts FlightRecorder::counts() const { return {written_, lost_, full_}; }

}  // namespace gradmon
