// SPDX-License-Identifier: Apache-2.0
// Small files in a directory to which other users may also write. A file is trusted if it is a regular file
// of at most 64 KiB that belongs to this user or root and that others cannot write. Does not follow symbolic
// links; refuses a FIFO or a device, without waiting. Any process, any thread.
#pragma once

#include <filesystem>
#include <string>
#include <tl/expected.hpp>

namespace gradmon {

// Returns "" without a trusted file.
std::string read_trusted_file(const std::filesystem::path& file);
// Replaces the file by rename, unless it already has this content. Makes the directory.
tl::expected<void, std::string> replace_trusted_file(const std::filesystem::path& file,
                                                     const std::string& text);

}  // namespace gradmon
