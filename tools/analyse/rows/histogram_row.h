// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "control/vocabulary.h"
#include "writers/queue/histogram.h"

namespace gradmon {

// A histogram as gradmon writes it for TensorBoard. A value.
struct HistogramRow {
  std::int64_t step = 0;
  std::int32_t vpp_stage = 0;
  std::string name;  // of the parameter
  int rank = 0;
  Kind kind = Kind::update;
  std::array<double, kBins> counts{};  // finite, at least 0
};

// Parses the data of one record of an event file. nullopt: not an event, or not a histogram of gradmon (their
// tags are `{kind}/[{vpp_stage}:]{name}`, in msprobe's form `{vpp_stage}:{name}/rank{R}/{kind}`). `rank`: the
// file's, which gradmon's form does not name. Pure.
std::optional<HistogramRow> histogram_row_of(std::string_view event, int rank = 0);

}  // namespace gradmon
