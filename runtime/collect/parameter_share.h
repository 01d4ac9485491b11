// SPDX-License-Identifier: Apache-2.0
// The rank that writes the rows of a parameter held by several ranks, and the part that each holds. Pure.
#pragma once

#include <string>
#include <tl/expected.hpp>

#include "gradmon/parallel_groups.h"
#include "hooks/rows/watched_model.h"

namespace gradmon {

// The error names the group and the defect: a rank out of range, a duplicate rank, or `rank` missing.
tl::expected<void, std::string> check_groups(const ParallelGroups& groups, int rank, int world_size);

struct ParameterShare {
  RowAuthor author = RowAuthor::this_rank;
  ParameterPlacement placement;
};
ParameterShare share_of(const ParallelGroups& groups, int rank, const std::string& parameter);

}  // namespace gradmon
