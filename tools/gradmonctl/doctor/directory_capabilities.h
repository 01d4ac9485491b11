// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <tl/expected.hpp>

namespace gradmon {

// The type of a path's file system: "ext4", "nfs", or "0x1234abcd" for an unknown type. "" if statfs() fails;
// errno then has the cause.
std::string file_system_of(const std::filesystem::path& path);
// True if changes made on another host raise no inotify events on this host.
bool is_network_file_system(const std::string& kind);

// The operations that a directory supports, tested with temporary files in it.
struct DirectoryCapabilities {
  bool watch = false;     // a rename raises an event within a second
  bool exchange = false;  // renameat2(RENAME_EXCHANGE)
};

// Runs the tests and removes the files. The error, one readable line: no file can be
// created in the directory.
tl::expected<DirectoryCapabilities, std::string> probe_directory(const std::filesystem::path& directory);

}  // namespace gradmon
