// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/rows/histogram_row.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "writers/sinks/tensorboard/event.pb.h"

namespace gradmon {
namespace {

template <typename Number>
bool parse(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number >= 0;
}

bool parse_tag_by_kind(std::string_view tag, HistogramRow& row) {
  const std::size_t slash = std::min(tag.find('/'), tag.size());
  for (std::size_t i = kRecordKinds; i < kKinds; ++i) {
    if (tag.substr(0, slash) != kKindNames[i] || slash == tag.size()) continue;
    row.kind = static_cast<Kind>(i);
    row.name = tag.substr(slash + 1);
    const std::size_t colon = row.name.find(':');
    if (colon != std::string::npos && parse(row.name.substr(0, colon), row.vpp_stage))
      row.name.erase(0, colon + 1);
    return true;
  }
  return false;
}

bool parse_msprobe_tag(std::string_view tag, HistogramRow& row) {
  constexpr std::string_view kRank = "/rank";
  const std::size_t colon = tag.find(':'), rank = tag.rfind(kRank), kind = tag.rfind('/');
  if (colon == std::string_view::npos || rank == std::string_view::npos || rank < colon || kind <= rank)
    return false;
  const std::size_t after_rank = rank + kRank.size();
  row.name = tag.substr(colon + 1, rank - colon - 1);
  for (std::size_t i = kRecordKinds; i < kKinds; ++i) {
    row.kind = static_cast<Kind>(i);
    if (tag.substr(kind + 1) == kKindNames[i])
      return parse(tag.substr(0, colon), row.vpp_stage) &&
             parse(tag.substr(after_rank, kind - after_rank), row.rank);
  }
  return false;
}

bool copy_counts(const tensorboard::HistogramProto& histogram, HistogramRow& row) {
  if (histogram.bucket_size() != static_cast<int>(kBins)) return false;
  for (std::size_t bin = 0; bin < kBins; ++bin) {
    const double count = histogram.bucket(static_cast<int>(bin));
    if (!std::isfinite(count) || count < 0) return false;
    row.counts[bin] = count;
  }
  return true;
}

}  // namespace

std::optional<HistogramRow> histogram_row_of(std::string_view data, int rank) {
  tensorboard::Event event;
  if (!event.ParseFromArray(data.data(), static_cast<int>(data.size()))) return std::nullopt;
  if (event.step() < 0 || event.summary().value_size() != 1) return std::nullopt;
  const tensorboard::Summary::Value& value = event.summary().value(0);
  HistogramRow row;
  row.step = event.step();
  row.rank = rank;
  const bool tagged = parse_tag_by_kind(value.tag(), row) || parse_msprobe_tag(value.tag(), row);
  if (!tagged || !value.has_histo() || !copy_counts(value.histo(), row)) return std::nullopt;
  return row;
}

}  // namespace gradmon
