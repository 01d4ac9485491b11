// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace gradmon {

// A descriptor that every forked child of this process closes: as long as a child
// has its copy, the kernel does not tell the other end that this process has gone.
// At most 64 at a time; more are not closed. Any thread.
class ClosedInChildren {
 public:
  explicit ClosedInChildren(int fd);
  ~ClosedInChildren();
  ClosedInChildren(const ClosedInChildren&) = delete;
  ClosedInChildren& operator=(const ClosedInChildren&) = delete;

 private:
  int slot_ = -1;  // -1: none was free
};

}  // namespace gradmon
