// SPDX-License-Identifier: Apache-2.0
#include "writers/sinks/tensorboard/tensorboard_sink.h"

#include <chrono>
#include <utility>

#include "writers/sinks/tensorboard/text_event.h"

namespace gradmon {
namespace {

constexpr std::size_t kBytesOfAPart = std::size_t{1} << 20U;

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

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

tl::expected<void, SinkError> TensorBoardSink::write_step(Step step, const std::vector<Record>& records) {
  return write_rows(step, records);
}

tl::expected<void, SinkError> TensorBoardSink::write_histograms(Step step,
                                                                const std::vector<Histogram>& histograms) {
  return write_rows(step, histograms);
}

template <typename Row>
tl::expected<void, SinkError> TensorBoardSink::write_rows(Step step, const std::vector<Row>& rows) {
  const double wall_time = seconds_since_1970();
  const auto lost_from = [&](std::size_t row, std::string error) {
    return tl::unexpected(SinkError{std::move(error), rows.size() - row});
  };
  if (std::string error = write_config(step, wall_time); !error.empty())
    return lost_from(0, std::move(error));
  for (std::size_t begin = 0; begin < rows.size();) {
    const std::size_t end = encode(rows, begin, wall_time);
    auto outcome = files_.append(directory_, file_version_record(wall_time), rows_);
    if (!outcome.error.empty()) return lost_from(begin + outcome.rows_kept, std::move(outcome.error));
    if (!report(rows, begin, end) && end != rows.size())
      return lost_from(end, "rest of step " + std::to_string(step.value) + " not written: stop() timed out");
    begin = end;
  }
  return {};
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
template <typename Row>
std::size_t TensorBoardSink::encode(const std::vector<Row>& rows, std::size_t begin, double wall_time) {
  rows_.bytes.clear();
  rows_.ends.clear();
  std::size_t row = begin;
  for (; row != rows.size() && rows_.bytes.size() < kBytesOfAPart; ++row) {
    encoder_->append(rows_.bytes, rows[row], wall_time);
    rows_.ends.push_back(rows_.bytes.size());
  }
  return row;
}

// False: the rest of the step is to be given up.
template <typename Row>
bool TensorBoardSink::report(const std::vector<Row>& rows, std::size_t begin, std::size_t end) const {
  bool go_on = true;
  while (on_part_ && begin != end) {
    std::size_t next = begin;
    while (next != end && rows[next].kind == rows[begin].kind) ++next;
    go_on = on_part_(rows[begin].kind, next - begin) && go_on;
    begin = next;
  }
  return go_on;
}

}  // namespace gradmon
