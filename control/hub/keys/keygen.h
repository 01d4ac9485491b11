// SPDX-License-Identifier: Apache-2.0
// Makes the files that curve_keys.h reads. Never overwrites a key. All files are synced to disk before the
// functions return. The returned text is a message for the user and contains no key.
#pragma once

#include <filesystem>
#include <string>
#include <tl/expected.hpp>

#include "control/hub/keys/allow_list.h"

namespace gradmon {

// Makes a key directory (0700) and its missing parents; uses an existing empty directory. The directory gets
// the job's key pair and the clients "ranks" and "operator", both with the role control. Secrets have mode
// 0600, the other files 0644.
tl::expected<std::string, std::string> make_key_directory(const std::filesystem::path& directory);

// Adds a client: makes NAME.secret and adds a line to clients.allow.
tl::expected<std::string, std::string> add_client(const std::filesystem::path& directory,
                                                  const Client& client);

}  // namespace gradmon
