// SPDX-License-Identifier: Apache-2.0
// The repository's own files as a value, for the checks of its layout.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace gradmon {

// Path from the repository root (with '/') to content.
using SourceTree = std::map<std::string, std::string>;

// Where sources lie; all else in the root (build, .git) is not read.
inline const std::vector<std::string> kSourceFolders{"control", "hooks", "writers",
                                                     "runtime", "tools", "tests"};

// Every regular file below those of `folders` that exist in `root`. Throws
// std::filesystem::filesystem_error or std::runtime_error where one cannot be read.
SourceTree read_tree(const std::filesystem::path& root,
                     const std::vector<std::string>& folders = kSourceFolders);

std::string read_file(const std::filesystem::path& path);

// Whether `path` is `place`, or lies in the folder `place`.
bool lies_in(const std::string& path, const std::string& place);

}  // namespace gradmon
