// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace gradmon {

// This host's numeric address by which packets go to `host`; where that is this host
// itself under a loopback name, or cannot be resolved, the first address of an interface
// that is up. "": there is none but loopback. Resolves a name, which may take long.
std::string local_address_towards(const std::string& host);

}  // namespace gradmon
