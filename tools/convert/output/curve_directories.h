// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <tl/expected.hpp>

namespace gradmon {

// Moves each directory `from`/rank{R}/{prefix} to `to`/rank{R}/{prefix}, and changes nothing else in `to`.
// Replaces an existing one if it has only event files; the old one ends up below `from`. At any moment each
// of them is the old one or the new one, complete; on a file system that cannot exchange two names, one is
// missing for a moment. After an error `to` is unchanged; the error names the path. `from` and `to` must be
// on one file system. Returns the number of replaced directories.
[[nodiscard]] tl::expected<std::size_t, std::string> move_curve_directories(const std::filesystem::path& from,
                                                                            const std::filesystem::path& to);

}  // namespace gradmon
