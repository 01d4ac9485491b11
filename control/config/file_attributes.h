// SPDX-License-Identifier: Apache-2.0
// What besides its content makes a file the user's own: owner, mode, ACL,
// extended attributes, links. Does file I/O; any thread.
#pragma once

#include <filesystem>
#include <string>

namespace gradmon {

// Gives the open file `fd` the attributes of `source`. "", or which of them
// cannot be kept, for people.
[[nodiscard]] std::string copy_attributes(const std::filesystem::path& source, int fd);

// "", or why the file is not to be replaced, for people.
[[nodiscard]] std::string why_unwritable(const std::filesystem::path& file);

}  // namespace gradmon
