// SPDX-License-Identifier: Apache-2.0
#include "writers/sinks/tensorboard_sink.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "writers/sinks/event_records.h"

namespace gradmon {
namespace {

constexpr std::size_t kBytesOfAPart = std::size_t{1} << 20U;

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

Kind kind_at(const RecordBatch& rows, std::size_t row) { return rows.kind(row); }
Kind kind_at(const std::vector<Histogram>& rows, std::size_t row) { return rows[row].kind; }

}  // namespace

TensorBoardSink::TensorBoardSink(Settings settings)
    : settings_(std::move(settings)), files_(settings_.most_bytes_of_a_file) {}

tl::expected<void, SinkError> TensorBoardSink::begin_revision(const Layout& layout) {
  directory_ = settings_.directory() / "tensorboard";
  revision_ = layout.revision;
  config_written_ = settings_.config.empty();
  encoder_.emplace(settings_.names, settings_.rank, layout);
  return {};
}

tl::expected<void, SinkError> TensorBoardSink::write_step(Step step, const RecordBatch& records) {
  return write_rows(step, records);
}

tl::expected<void, SinkError> TensorBoardSink::write_histograms(Step step,
                                                                const std::vector<Histogram>& histograms) {
  return write_rows(step, histograms);
}

template <typename Rows>
tl::expected<void, SinkError> TensorBoardSink::write_rows(Step step, const Rows& rows) {
  const double wall_time = seconds_since_1970();
  const auto lost_from = [&](std::size_t row, std::string error) {
    return tl::unexpected(SinkError{std::move(error), rows.size() - row});
  };
  if (auto found = find_known_rows(step); !found) return lost_from(0, std::move(found.error()));
  if (std::string error = write_config(step, wall_time); !error.empty())
    return lost_from(0, std::move(error));
  for (std::size_t begin = 0; begin < rows.size();) {
    const std::size_t end = encode(rows, begin, wall_time);
    EventFiles::Outcome outcome{0, ""};
    if (!rows_.bytes.empty()) outcome = files_.append(directory_, file_version_record(wall_time), rows_);
    if (!outcome.error.empty()) return lost_from(begin + outcome.rows_kept, std::move(outcome.error));
    if (!report(rows, begin, end) && end != rows.size())
      return lost_from(end, "rest of step " + std::to_string(step.value) + " not written: stop() timed out");
    begin = end;
  }
  return {};
}

tl::expected<void, std::string> TensorBoardSink::find_known_rows(Step step) {
  if (known_ || settings_.resume == Resume::no) return {};
  auto known = find_events_in(directory_, step.value);
  if (!known) return tl::unexpected(std::move(known.error()));
  known_ = std::move(*known);
  return {};
}

// Removes the known events of a row. `begin`: of the row, which was encoded last.
void TensorBoardSink::drop_known_events(std::int64_t step, std::size_t begin) {
  const auto has_step = [step](const KnownRows& known) { return known.has_step(step); };
  if (!known_ || std::none_of(known_->begin(), known_->end(), has_step)) return;
  const std::string row = rows_.bytes.substr(begin);
  rows_.bytes.resize(begin);
  std::string_view rest = row;
  while (const auto event = first_record(rest)) {
    const std::string tag = tag_of_event(*event);
    const auto has_event = [&](const KnownRows& known) { return known.has(step, tag); };
    const std::size_t size = size_of_record(*event);
    if (std::none_of(known_->begin(), known_->end(), has_event)) rows_.bytes += rest.substr(0, size);
    rest.remove_prefix(size);
  }
}

// "" if it succeeded, now or earlier.
std::string TensorBoardSink::write_config(Step step, double wall_time) {
  if (config_written_) return {};
  EventRows text;
  text.bytes = text_record("config", config_markdown(revision_, settings_.config), step, wall_time);
  text.ends = {text.bytes.size()};
  std::string error = files_.append(directory_, file_version_record(wall_time), text).error;
  config_written_ = error.empty();
  return error;
}

// Encodes rows until the part is large enough. Returns the first row that is not in it.
template <typename Rows>
std::size_t TensorBoardSink::encode(const Rows& rows, std::size_t begin, double wall_time) {
  rows_.bytes.clear();
  rows_.ends.clear();
  std::size_t row = begin;
  for (; row != rows.size() && rows_.bytes.size() < kBytesOfAPart; ++row) {
    const std::size_t before = rows_.bytes.size();
    const auto& encoded = rows[row];
    encoder_->append(rows_.bytes, encoded, wall_time);
    drop_known_events(encoded.step, before);
    rows_.ends.push_back(rows_.bytes.size());
  }
  return row;
}

// False: the rest of the step must be dropped.
template <typename Rows>
bool TensorBoardSink::report(const Rows& rows, std::size_t begin, std::size_t end) const {
  bool go_on = true;
  while (on_part_ && begin != end) {
    std::size_t next = begin;
    while (next != end && kind_at(rows, next) == kind_at(rows, begin)) ++next;
    go_on = on_part_(kind_at(rows, begin), next - begin) && go_on;
    begin = next;
  }
  return go_on;
}

}  // namespace gradmon
