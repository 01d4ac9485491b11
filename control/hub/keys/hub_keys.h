// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <tl/expected.hpp>

#include "control/hub/keys/curve_keys.h"

namespace gradmon {

// The key pair that a hub makes for itself, with its endpoint and the keys it admits. Saved in the job's
// directory (0700), so that a restarted hub keeps its identity. The file has one line each for the secret,
// the endpoint or "-", and every admitted key.
struct HubKeys {
  SecretKey secret;
  std::string endpoint;         // lead hub only: its last address; "": never listened
  std::set<KeyBytes> admitted;  // lead hub only: public keys of the other hosts' hubs
};

// Reads the file. If it is missing, invalid or not trusted: generates new keys, which are not saved yet.
tl::expected<HubKeys, std::string> hub_keys_in(const std::filesystem::path& file);
// Replaces the file by rename; mode 0600.
tl::expected<void, std::string> save_hub_keys(const std::filesystem::path& file, const HubKeys& keys);

}  // namespace gradmon
