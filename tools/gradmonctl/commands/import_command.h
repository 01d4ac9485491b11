// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include "tools/gradmonctl/show/console.h"

namespace gradmon {

// Of a file of MindSpore Transformers.
struct ImportRequest {
  std::string file;
  std::string output;  // "": stdout
};

// gradmonctl import: the config goes to `console.out`, or to a new file, and to
// `console.err` a table of what each key became. Returns the exit code: 6 where
// a key is wrong, 1 where the file cannot be read, or the new one not made.
int import_command(const ImportRequest& request, const Console& console);

}  // namespace gradmon
