// SPDX-License-Identifier: Apache-2.0
// Small files in a directory that others may write, too: trusted where they are regular
// files of this user's or root's which others cannot write, of at most 64 KiB. A link, a
// FIFO, a device is passed over without being opened. Any process, any thread.
#pragma once

#include <filesystem>
#include <string>
#include <tl/expected.hpp>

namespace gradmon {

// "" where there is none to be trusted.
std::string read_trusted_file(const std::filesystem::path& file);
// By rename, unless that text stands there already; makes the directory.
tl::expected<void, std::string> keep_trusted_file(const std::filesystem::path& file, const std::string& text);

}  // namespace gradmon
