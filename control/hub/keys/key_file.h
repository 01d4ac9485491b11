// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <tl/expected.hpp>

namespace gradmon {

// owner_only: others can neither read nor write the key file. owner_writes: others can only read it.
enum class KeyAccess { owner_only, owner_writes };

// Returns "" or the reason to distrust this directory: it is missing, is not a directory, belongs to another
// user, or is writable by others.
std::string key_directory_objection(const std::filesystem::path& directory);

// Reads a regular file of at most 1 MiB that belongs to this user or root and allows others no more than
// `access`. Never blocks (a FIFO is refused). The returned string is the only copy of a secret; the caller
// wipes it.
tl::expected<std::string, std::string> read_key_file(const std::filesystem::path& file, KeyAccess access);

}  // namespace gradmon
