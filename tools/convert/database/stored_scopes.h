// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "tools/analyse/rows/problems.h"
#include "writers/queue/name_table.h"
#include "writers/queue/scope_table.h"

namespace gradmon {

// The scopes.json of a rank's directories, those of the last start last: of a target and kind that several
// have, the last one counts. A directory without the file is no problem. `names` receives targets and scopes.
std::shared_ptr<const ScopeTable> stored_scopes(const std::vector<std::filesystem::path>& directories,
                                                NameTable& names, Problems& problems);

}  // namespace gradmon
