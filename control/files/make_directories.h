// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <tl/expected.hpp>

namespace gradmon {

// Creates a directory and its missing parents with mode 0750 (less the umask). Existing directories keep
// their mode. Any thread.
tl::expected<void, std::string> make_directories(const std::filesystem::path& directory);

}  // namespace gradmon
