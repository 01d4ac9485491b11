// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <tl/expected.hpp>

namespace gradmon {

// Makes a directory and what is missing above it, 0750 each; what is there
// already keeps its mode. Any thread.
tl::expected<void, std::string> make_private_directory(const std::filesystem::path& directory);

}  // namespace gradmon
