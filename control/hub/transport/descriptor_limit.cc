// SPDX-License-Identifier: Apache-2.0
#include "control/hub/transport/descriptor_limit.h"

#include <dirent.h>
#include <sys/resource.h>

#include <algorithm>
#include <limits>

namespace gradmon {
namespace {

std::size_t open_descriptors() {
  std::size_t count = 0;
  if (DIR* fds = opendir("/proc/self/fd")) {
    while (readdir(fds) != nullptr) ++count;
    closedir(fds);
  }
  return count;
}

std::size_t most_descriptors() {
  rlimit limit{};
  const bool unlimited = getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY;
  return unlimited ? std::numeric_limits<std::size_t>::max() : limit.rlim_cur;
}

}  // namespace

std::string descriptor_shortage(std::size_t to_spare) {
  if (free_descriptors() >= to_spare) return "";
  return "cannot open sockets: " + std::to_string(open_descriptors()) + " of " +
         std::to_string(most_descriptors()) + " file descriptors are in use, " + std::to_string(to_spare) +
         " must be free";
}

std::size_t free_descriptors() {
  const std::size_t used = open_descriptors();
  const std::size_t most = most_descriptors();
  return most > used ? most - used : 0;
}

void raise_descriptor_limit() {
  constexpr rlim_t most = 65'536;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = std::min(limit.rlim_max, most);
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = wanted;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace gradmon
