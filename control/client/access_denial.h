// SPDX-License-Identifier: Apache-2.0
// Explains a denied path. A check for existence alone takes a denied path for a missing one. One thread at a
// time, because it calls getpwuid().
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace gradmon {

enum class Access : std::uint8_t { read, connect };  // read: includes searching a directory

// "" if this process has access, or if the path does not exist. Else a sentence: the path, the directory
// or file that denies access, its owner and mode, and the remedy.
std::string access_denial(const std::filesystem::path& path, Access access);

}  // namespace gradmon
