// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <tl/expected.hpp>

namespace gradmon {

// The kind of file system a path lies on, as "ext4", "nfs" or "0x1234abcd"; ""
// where the path cannot be asked.
std::string file_system_of(const std::filesystem::path& path);
// Whether changes made on another host raise no events here.
bool is_network_file_system(const std::string& kind);

// What a directory can do, found out by doing it with files of our own in it,
// which are removed again.
struct DirectoryTrial {
  bool watch = false;     // a rename raises an event within a second
  bool exchange = false;  // renameat2(RENAME_EXCHANGE)
  bool link = false;      // link(2), failing where the name is taken
};

// The error, a line for people: no file can be made there.
tl::expected<DirectoryTrial, std::string> try_directory(const std::filesystem::path& directory);

}  // namespace gradmon
