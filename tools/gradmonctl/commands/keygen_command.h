// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include "tools/gradmonctl/show/console.h"

namespace gradmon {

// A request for a new directory of keys; for one more client in it if `client` is not "".
struct KeygenRequest {
  std::string directory;
  std::string client;
  std::string role;  // "read" or "control"
};

// gradmonctl keygen: creates a directory of keys, or adds a client to it. Prints no key.
// Returns the exit code.
int keygen_command(const KeygenRequest& request, const Console& console);

}  // namespace gradmon
