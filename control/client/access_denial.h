// SPDX-License-Identifier: Apache-2.0
// Explains a denied path. To code that only checks whether a path exists, a denied path looks missing.
// One thread at a time, because it calls getpwuid().
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace gradmon {

enum class Access : std::uint8_t { read, connect };  // read: a directory must be searchable, too

// "" if this process has access, or if the path does not exist. Else a sentence: the path, the directory
// or file that denies access, its owner and mode, and the remedy.
std::string access_denial(const std::filesystem::path& path, Access access);

}  // namespace gradmon
