// SPDX-License-Identifier: Apache-2.0
#include "control/files/make_directories.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>

namespace gradmon {

tl::expected<void, std::string> make_directories(const std::filesystem::path& directory) {
  std::filesystem::path made;
  for (const std::filesystem::path& part : directory) {
    made /= part;
    if (mkdir(made.c_str(), 0750) == 0 || errno == EEXIST || errno == EISDIR) continue;
    const int why = errno;
    std::error_code error;
    if (std::filesystem::is_directory(made, error)) continue;  // On a read-only root.
    return tl::unexpected("cannot make " + made.string() + ": " + std::strerror(why));
  }
  return {};
}

}  // namespace gradmon
