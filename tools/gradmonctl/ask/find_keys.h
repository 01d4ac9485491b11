// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <tl/expected.hpp>

#include "control/hub/keys/curve_keys.h"
#include "tools/gradmonctl/ask/job_selector.h"

namespace gradmon {

// The directory of keys for an endpoint; "" for none. --keys, else GRADMON_KEYS, else
// $XDG_CONFIG_HOME/gradmon/keys (or ~/.config/gradmon/keys) if it exists, but not for a
// loopback endpoint with GRADMON_INSECURE_LOOPBACK=1.
std::string key_directory(const JobSelector& selector, const std::string& endpoint);

// The client keys from that directory; nullopt for a Unix socket, or without a directory. The error: the keys
// in the directory are unusable.
tl::expected<std::optional<ClientKeys>, std::string> find_keys(const JobSelector& selector,
                                                               const std::string& endpoint);

}  // namespace gradmon
