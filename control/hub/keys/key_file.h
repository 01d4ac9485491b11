// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <tl/expected.hpp>

namespace gradmon {

// Whom a file of keys is guarded against: everybody who is neither this user nor root.
enum class Guarded { against_reading, against_writing };

// "" or why this directory is not to be trusted: not there, not a directory,
// somebody else's, writable by others.
std::string key_directory_objection(const std::filesystem::path& directory);

// The whole of a regular file of at most 1 MiB that is this user's or root's
// and so guarded. Never waits (a FIFO is refused). A secret's content is left in
// no other memory than the returned string's, which the caller wipes.
tl::expected<std::string, std::string> read_key_file(const std::filesystem::path& file, Guarded guarded);

}  // namespace gradmon
