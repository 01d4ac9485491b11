// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <tl/expected.hpp>

#include "control/hub/keys/curve_keys.h"

namespace gradmon {

// The pair that a hub makes for itself, and what others know of it. Kept in the job's
// directory (0700), so that a hub that was started again is the same to the others. The
// file holds one line each: the secret, the endpoint or "-", the keys let in.
struct HubKeys {
  SecretKey secret;
  std::string endpoint;         // of the lead: where it listened last; "": nowhere yet
  std::set<KeyBytes> admitted;  // of the lead: the hubs of other hosts
};

// Those in the file, or new ones where it is missing or not to be trusted; not kept yet.
tl::expected<HubKeys, std::string> hub_keys_in(const std::filesystem::path& file);
// By rename; 0600.
tl::expected<void, std::string> keep_hub_keys(const std::filesystem::path& file, const HubKeys& keys);

}  // namespace gradmon
