// SPDX-License-Identifier: Apache-2.0
#include "writers/alerts/watched_values.h"

#include <array>
#include <cstddef>

#include "writers/sinks/columns.h"

namespace gradmon {
namespace {

std::uint8_t anomalies_of(const RowColumn& column, bool of_scalar, bool has_statistics) {
  std::uint8_t bits = bit_of(Anomaly::nan);
  const auto add = [&bits](Anomaly anomaly) { bits = static_cast<std::uint8_t>(bits | bit_of(anomaly)); };
  const bool norm = has_statistics && column.value == static_cast<std::size_t>(Op::norm);
  const bool mean = has_statistics && column.value == static_cast<std::size_t>(Op::mean);
  if (norm || mean) add(Anomaly::turbulence);
  if (norm || of_scalar) add(Anomaly::spike);
  if (norm) add(Anomaly::vanish);
  return bits;
}

std::vector<WatchedValue> make_watched_values(Kind kind) {
  const std::vector<RowColumn> columns = columns_of(kind, layout_of_all_ops());
  const bool has_statistics = columns.back().source == RowColumn::Source::dtype;
  std::vector<WatchedValue> values;
  for (const RowColumn& column : columns) {
    const bool number = column.source == RowColumn::Source::number;
    const bool samples = kind == Kind::scalar && column.source == RowColumn::Source::count;
    if ((!number && column.source != RowColumn::Source::count) || samples) continue;
    values.push_back(
        {column.value, column.title, anomalies_of(column, kind == Kind::scalar, has_statistics)});
  }
  return values;
}

}  // namespace

const std::vector<WatchedValue>& watched_values(Kind kind) {
  static const std::array<std::vector<WatchedValue>, kKinds> all = [] {
    std::array<std::vector<WatchedValue>, kKinds> made;
    for (std::size_t of = 0; of < kRecordKinds; ++of) made[of] = make_watched_values(static_cast<Kind>(of));
    return made;
  }();
  return all[static_cast<std::size_t>(kind)];
}

}  // namespace gradmon
