// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "tools/analyse/find/layer_changes.h"
#include "tools/analyse/rows/problems.h"
#include "tools/analyse/rows/runs.h"
#include "tools/gradmonctl/show/json_rule.h"

namespace gradmon {

// `count`: the most entries of each list.
std::string top_text(const Run& run, const LayerChanges& changes, std::size_t count);
OrderedJson top_json(const Run& run, const LayerChanges& changes, std::size_t count,
                     const Problems& problems);

}  // namespace gradmon
