// SPDX-License-Identifier: Apache-2.0
// Writes that a crash of the machine does not undo. Any thread; does file I/O.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

namespace gradmon {

// All of it; false: errno says why not.
[[nodiscard]] bool write_all(int fd, std::string_view bytes);

// Makes or overwrites a file, 0640, no link, and syncs it; its name lasts once
// its directory has been synced too. Where it fails no file is left.
[[nodiscard]] tl::expected<void, std::string> write_durably(const std::filesystem::path& file,
                                                            std::string_view bytes);

// As far as the file system can.
void sync_directory(const std::filesystem::path& directory);

}  // namespace gradmon
