// SPDX-License-Identifier: Apache-2.0
#include "runtime/collect/parameter_share.h"

#include <algorithm>
#include <set>

namespace gradmon {
namespace {

tl::expected<void, std::string> check_group(const char* name, const std::vector<int>& group, int rank,
                                            int world_size) {
  if (group.empty()) return {};
  const auto wrong = [&](const std::string& what) {
    return tl::unexpected(std::string("groups.") + name + ": " + what);
  };
  std::set<int> seen;
  for (const int member : group) {
    if (member < 0 || member >= world_size)
      return wrong("rank " + std::to_string(member) + ", expected 0 to " + std::to_string(world_size - 1));
    if (!seen.insert(member).second) return wrong("duplicate rank " + std::to_string(member));
  }
  if (seen.count(rank) == 0) return wrong("must contain this process's rank " + std::to_string(rank));
  return {};
}

bool is_first(const std::vector<int>& group, int rank) { return group.empty() || group.front() == rank; }

}  // namespace

tl::expected<void, std::string> check_groups(const ParallelGroups& groups, int rank, int world_size) {
  auto checked = check_group("data", groups.data, rank, world_size);
  if (checked) checked = check_group("tensor", groups.tensor, rank, world_size);
  if (checked) checked = check_group("pipeline", groups.pipeline, rank, world_size);
  return checked ? check_group("replicas", groups.replicas, rank, world_size) : checked;
}

ParameterShare share_of(const ParallelGroups& groups, int rank, const std::string& parameter) {
  ParameterShare share;
  const bool spread = groups.tensor.size() > 1;
  const bool split = spread && (!groups.split || groups.split(parameter));
  if (split) {
    const auto place = std::find(groups.tensor.begin(), groups.tensor.end(), rank);
    share.placement = {ParameterPlacement::Part::shard, static_cast<int>(place - groups.tensor.begin()),
                       static_cast<int>(groups.tensor.size())};
  } else if (spread || groups.data.size() > 1) {
    share.placement.part = ParameterPlacement::Part::replica;
  }
  if (!is_first(groups.data, rank)) share.author = RowAuthor::this_rank_unreduced_only;
  if (spread && !split && !is_first(groups.tensor, rank)) share.author = RowAuthor::another_rank;
  return share;
}

}  // namespace gradmon
