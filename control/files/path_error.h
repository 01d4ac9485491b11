// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <system_error>
#include <tl/expected.hpp>

namespace gradmon {

// "/the/path: No such file or directory". `code`: an errno.
inline tl::unexpected<std::string> path_error(const std::filesystem::path& path, int code) {
  return tl::unexpected<std::string>(path.string() + ": " + std::generic_category().message(code));
}

}  // namespace gradmon
