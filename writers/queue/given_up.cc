// SPDX-License-Identifier: Apache-2.0
#include "writers/queue/given_up.h"

#include <numeric>

namespace gradmon {
namespace {

std::string counted(std::uint64_t count, const std::string& thing) {
  return std::to_string(count) + " " + thing + (count == 1 ? "" : "s");
}

}  // namespace

std::uint64_t GivenUp::all_rows() const { return std::accumulate(rows.begin(), rows.end(), queued); }

std::string to_string(const GivenUp& given_up) {
  std::string kinds;
  const auto add = [&](std::uint64_t count, const std::string& kind) {
    if (count > 0) kinds += (kinds.empty() ? "" : ", ") + std::to_string(count) + " of " + kind;
  };
  for (std::size_t kind = 0; kind < kKinds; ++kind) add(given_up.rows[kind], kKindNames[kind]);
  add(given_up.queued, "unknown kind");
  std::string text = counted(given_up.all_rows(), "row");
  if (!kinds.empty()) text += " (" + kinds + ")";
  if (given_up.files > 0) text += " and " + counted(given_up.files, "other file");
  return text;
}

}  // namespace gradmon
