// SPDX-License-Identifier: Apache-2.0
#include "control/files/checked_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "control/files/descriptor.h"
#include "control/files/path_error.h"

namespace gradmon {

tl::expected<std::string, std::string> read_checked_file(
    const std::filesystem::path& file, int flags,
    const std::function<std::string(const struct stat&)>& objection) {
  const auto failed = [&] { return path_error(file, errno); };
  const Descriptor opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | flags));
  struct stat status {};
  if (!opened.valid() || fstat(opened.get(), &status) != 0) {
    if (errno == ENXIO) return tl::unexpected(file.string() + ": not a regular file");
    return failed();
  }
  if (std::string why = objection(status); !why.empty()) return tl::unexpected(std::move(why));
  std::string text(static_cast<std::size_t>(status.st_size), '\0');
  std::size_t filled = 0;
  while (filled < text.size()) {
    const ssize_t got = ::read(opened.get(), text.data() + filled, text.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failed();
    if (got == 0) break;
    filled += static_cast<std::size_t>(got);
  }
  text.resize(filled);
  return text;
}

}  // namespace gradmon
