// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include "tools/gradmonctl/cli/console.h"

namespace gradmon {

// A request to import a MindSpore Transformers file.
struct ImportRequest {
  std::string file;
  std::string output;  // "": stdout
};

// gradmonctl import: writes the config to `console.out` or to a new file, and a table of the
// translated keys to `console.err`. Returns the exit code: 6 if a key is invalid, 1 if the
// file cannot be read or the new file cannot be created.
int import_command(const ImportRequest& request, const Console& console);

}  // namespace gradmon
