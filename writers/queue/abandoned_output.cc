// SPDX-License-Identifier: Apache-2.0
#include "writers/queue/abandoned_output.h"

#include <numeric>

namespace gradmon {
namespace {

std::string counted(std::uint64_t count, const std::string& thing) {
  return std::to_string(count) + " " + thing + (count == 1 ? "" : "s");
}

}  // namespace

std::uint64_t AbandonedOutput::all_rows() const { return std::accumulate(rows.begin(), rows.end(), queued); }

std::string to_string(const AbandonedOutput& abandoned_output) {
  std::string kinds;
  const auto add = [&](std::uint64_t count, const std::string& kind) {
    if (count > 0) kinds += (kinds.empty() ? "" : ", ") + std::to_string(count) + " of " + kind;
  };
  for (std::size_t kind = 0; kind < kKinds; ++kind) add(abandoned_output.rows[kind], kKindNames[kind]);
  add(abandoned_output.queued, "unknown kind");
  std::string text = counted(abandoned_output.all_rows(), "row");
  if (!kinds.empty()) text += " (" + kinds + ")";
  if (abandoned_output.files > 0) text += " and " + counted(abandoned_output.files, "other file");
  return text;
}

}  // namespace gradmon
