// SPDX-License-Identifier: Apache-2.0
// Makes what curve_keys.h reads. Nothing is ever overwritten. All files are
// fsynced before the functions return, and the values are lines for people
// which hold no key.
#pragma once

#include <filesystem>
#include <string>
#include <tl/expected.hpp>

#include "control/hub/keys/allow_list.h"

namespace gradmon {

// A new directory of keys (0700, with its parents; an existing empty one is
// taken): the job's pair, and the clients "ranks" and "operator", both listed
// with the role control. Secrets are 0600, the rest 0644.
tl::expected<std::string, std::string> make_key_directory(const std::filesystem::path& directory);

// One more client: NAME.secret, and a line in clients.allow.
tl::expected<std::string, std::string> add_client(const std::filesystem::path& directory,
                                                  const Client& client);

}  // namespace gradmon
