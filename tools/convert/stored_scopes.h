// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "control/vocabulary.h"
#include "tools/analyse/rows/row.h"
#include "writers/queue/name_table.h"

namespace gradmon {

// The contents of one rank's scopes.json files. A value.
class StoredScopes {
 public:
  StoredScopes() = default;
  // Reads the files in a rank's directories, which must end with the last start's: if several have a target
  // and kind, the last one counts. A directory without the file is no problem.
  StoredScopes(const std::vector<std::filesystem::path>& directories, Problems& problems);

  // Sets the scopes of one kind. `names`: the table's; receives targets and scopes.
  void add_to(ScopeTable& table, Kind kind, NameTable& names) const;

 private:
  using Target = std::pair<int, std::string>;  // model chunk and name

  std::array<std::map<Target, std::string>, kKinds> scopes_;  // JSON objects, by kind
};

}  // namespace gradmon
