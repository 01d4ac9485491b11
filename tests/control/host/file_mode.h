// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <filesystem>
#include <stdexcept>

namespace gradmon {

// The permission bits of a file. Does not follow a symbolic link; throws if the path names nothing.
inline mode_t mode_of(const std::filesystem::path& path) {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0) throw std::runtime_error("no file " + path.string());
  return status.st_mode & 07777U;
}

}  // namespace gradmon
