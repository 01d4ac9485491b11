// SPDX-License-Identifier: Apache-2.0
// The properties of a file that an edit must keep: owner, mode, ACL, extended attributes, links. Does
// file I/O; any thread.
#pragma once

#include <filesystem>
#include <string>

namespace gradmon {

// Copies the attributes of `source` to the open file `fd`. Returns "" or the attribute that cannot be kept,
// for people.
[[nodiscard]] std::string copy_attributes(const std::filesystem::path& source, int fd);

// Returns "" or the reason why the file must not be written, for people.
[[nodiscard]] std::string why_unwritable(const std::filesystem::path& file);

}  // namespace gradmon
