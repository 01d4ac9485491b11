// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <tl/expected.hpp>

namespace gradmon {

// Moves each directory `from`/rank{R}/{prefix} to `to`/rank{R}/{prefix}, and changes nothing else in `to`.
// One that is there already is replaced, if it has nothing but event files; it ends up below `from`. At any
// moment each of them is the old one or the new one, whole; on a file system that cannot exchange two names,
// one is missing for a moment. After an error `to` is as it was; the error names the path. `from` and `to`
// must be on one file system. Returns how many were replaced.
[[nodiscard]] tl::expected<std::size_t, std::string> move_curve_directories(const std::filesystem::path& from,
                                                                            const std::filesystem::path& to);

}  // namespace gradmon
