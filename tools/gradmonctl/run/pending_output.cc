// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/run/pending_output.h"

#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace gradmon {

void PendingOutput::write(std::string_view bytes) {
  rest_ += bytes;
  std::size_t done = 0;
  for (pollfd file{fd_, POLLOUT, 0}; done < rest_.size() && poll(&file, 1, 0) == 1;) {
    // A pipe that can be written to takes PIPE_BUF bytes without blocking.
    const std::size_t size = std::min<std::size_t>(rest_.size() - done, PIPE_BUF);
    const ssize_t written = ::write(fd_, rest_.data() + done, size);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) break;
    done = written < 0 ? rest_.size() : done + static_cast<std::size_t>(written);
  }
  rest_.erase(0, done);
}

}  // namespace gradmon
