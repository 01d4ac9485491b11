// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <tl/expected.hpp>

#include "control/hub/keys/curve_keys.h"
#include "tools/gradmonctl/ask/job_place.h"

namespace gradmon {

// The directory of keys that is meant for an endpoint; "" where there is none.
std::string key_directory(const JobPlace& place, const std::string& endpoint);

// The keys to ask an endpoint with; none for a Unix socket. From --keys, else
// GRADMON_KEYS, else $XDG_CONFIG_HOME/gradmon/keys (or ~/.config/gradmon/keys) where there is
// such a directory, and the endpoint is not on loopback with GRADMON_INSECURE_LOOPBACK=1.
// The error: the directory named is not usable.
tl::expected<std::optional<ClientKeys>, std::string> find_keys(const JobPlace& place,
                                                               const std::string& endpoint);

}  // namespace gradmon
