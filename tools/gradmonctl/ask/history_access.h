// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

namespace gradmon {

// Why this user may not read the history of the newest job in an output directory
// (access_denial.h); "" if the user may, or if there is no history.
std::string history_denial(const std::filesystem::path& output_dir);

}  // namespace gradmon
