// SPDX-License-Identifier: Apache-2.0
// Why a path cannot be used, where that is a matter of rights: a path that is denied
// looks like one that is missing to whoever only asks whether it is there. One thread at a
// time: names of users come from getpwuid().
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace gradmon {

enum class Access : std::uint8_t { read, connect };  // a directory is entered, too

// "" where this process may, or where the path is not there. Else a sentence: the path,
// which directory or file on the way to it refuses, whose that is, and what to do.
std::string access_denial(const std::filesystem::path& path, Access access);

}  // namespace gradmon
