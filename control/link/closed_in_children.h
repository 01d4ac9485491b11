// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace gradmon {

// Makes every forked child of this process close its copy of a descriptor. Otherwise the other end would not
// see the end of file as long as a child keeps its copy. Does not own the descriptor. At most 64 descriptors
// at a time; further descriptors are not closed. Any thread.
class ClosedInChildren {
 public:
  explicit ClosedInChildren(int fd);
  ~ClosedInChildren();
  ClosedInChildren(const ClosedInChildren&) = delete;
  ClosedInChildren& operator=(const ClosedInChildren&) = delete;

 private:
  int slot_ = -1;  // -1: no slot was free
};

}  // namespace gradmon
