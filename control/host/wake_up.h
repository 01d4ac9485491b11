// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

#include "control/files/descriptor.h"

namespace gradmon {

// An eventfd by which any thread wakes a polling thread. If the system has no free descriptor, fd() is -1 and
// the polling thread wakes by its time-out only.
class WakeUp {
 public:
  WakeUp() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  WakeUp(const WakeUp&) = delete;
  WakeUp& operator=(const WakeUp&) = delete;

  int fd() const { return fd_.get(); }
  void wake() const {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = write(fd(), &one, sizeof one);
  }
  void clear() const {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t n = read(fd(), &count, sizeof count);
  }

 private:
  const Descriptor fd_;
};

}  // namespace gradmon
