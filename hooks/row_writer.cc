// SPDX-License-Identifier: Apache-2.0
#include "hooks/row_writer.h"

#include "control/log.h"

namespace gradmon {

std::string shape_text(const std::vector<std::int64_t>& sizes) {
  std::string text = "[";
  for (std::size_t i = 0; i < sizes.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(sizes[i]);
  return text + "]";
}

RowWriter::RowWriter(RecordStream& stream, Revision revision, std::uint8_t ops)
    : stream_(stream), revision_(revision), ops_(ops) {}

void RowWriter::write(Kind kind, Step step, std::uint64_t sequence, const Watched& watched,
                      const Reading& reading) {
  if (!reading.present || reading.stats.outcome == TensorStats::Outcome::empty) return;
  if (reading.stats.outcome == TensorStats::Outcome::not_applicable) {
    if (counts_.not_applicable++ == 0) {
      log_warn(watched.name + ": no numbers (complex, meta or freed storage); later ones are only counted");
    }
    return;
  }
  Record record;
  record.step = step.value;
  record.revision = revision_.value;
  record.sequence = sequence;
  record.values = reading.stats.values;
  record.target = watched.target;
  record.shape = shape_id(reading.sizes);
  record.kind = kind;
  record.dtype = reading.stats.dtype;
  record.mask = ops_;
  ++counts_.rows;
  if (!stream_.push(record)) ++counts_.refused;
}

std::uint32_t RowWriter::shape_id(const std::vector<std::int64_t>& sizes) {
  const auto known = shapes_.find(sizes);
  if (known != shapes_.end()) return known->second;
  return shapes_.emplace(sizes, stream_.shape_id(shape_text(sizes))).first->second;
}

}  // namespace gradmon
