// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <filesystem>
#include <functional>
#include <string>
#include <tl/expected.hpp>

namespace gradmon {

// Reads a whole file if `objection`, called with the status of the open file, returns "". Never waits for a
// FIFO and never makes a terminal the controlling one. `flags`: flags of open(2) in addition to O_RDONLY. The
// error is the objection or "FILE: cause". The returned string is the only copy. Any thread.
tl::expected<std::string, std::string> read_checked_file(
    const std::filesystem::path& file, int flags,
    const std::function<std::string(const struct stat&)>& objection);

}  // namespace gradmon
