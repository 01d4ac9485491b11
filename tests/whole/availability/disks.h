// SPDX-License-Identifier: Apache-2.0
// File systems of a test's own. They are mounted in a mount namespace of the test
// process, so that nothing is left behind when it is killed.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "tests/support/temporary_directory.h"
#include "tests/whole/availability/child.h"

namespace gradmon {

// Once, before the first mount: what is mounted from here on is seen by this
// process and its children alone. The error: why that cannot be.
std::string own_mounts();

// A tmpfs at a directory that exists.
class SmallDisk {
 public:
  SmallDisk(std::filesystem::path at, std::size_t bytes);
  ~SmallDisk();
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  void fill();  // not a byte more can be written
  void make_room();

 private:
  const std::filesystem::path at_;
};

// A FUSE file system over a directory of its own: while it hangs, no call on it
// returns, as on an NFS server that is away.
class HangingDisk {
 public:
  explicit HangingDisk(std::filesystem::path at);
  ~HangingDisk();
  HangingDisk(const HangingDisk&) = delete;
  HangingDisk& operator=(const HangingDisk&) = delete;

  void hang();
  void make_read_only();
  void go_on();
  // The same files, without FUSE: for the test, which must not hang.
  const std::filesystem::path& backing() const { return backing_.path(); }

 private:
  const std::filesystem::path at_;
  const TemporaryDirectory backing_;
  const TemporaryDirectory control_;
  std::unique_ptr<Child> server_;
};

}  // namespace gradmon
