// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "control/vocabulary.h"
#include "tools/analyse/rows/problems.h"
#include "writers/queue/name_table.h"
#include "writers/queue/scope_table.h"

namespace gradmon {

// What the scopes.json of one rank say. A value.
class StoredScopes {
 public:
  StoredScopes() = default;
  // Reads the files in a rank's directories, those of the last start last: of a target and kind that several
  // have, the last one counts. A directory without the file is no problem.
  StoredScopes(const std::vector<std::filesystem::path>& directories, Problems& problems);

  // Sets the scopes of one kind. `names`: that of the table; receives targets and scopes.
  void add_to(ScopeTable& table, Kind kind, NameTable& names) const;

 private:
  using Target = std::pair<int, std::string>;  // model chunk and name

  std::array<std::map<Target, std::string>, kKinds> scopes_;  // JSON objects, by kind
};

}  // namespace gradmon
