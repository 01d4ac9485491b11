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

// What has been made, renamed or removed in the directory outlives a crash of the machine.
// The error: "DIRECTORY: cause"; some file systems cannot do it.
tl::expected<void, std::string> sync_directory(const std::filesystem::path& directory);

}  // namespace gradmon
