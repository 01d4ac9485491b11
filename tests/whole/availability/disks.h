// SPDX-License-Identifier: Apache-2.0
// File systems made by a test. They are mounted in a mount namespace of the test
// process, so that no mount is left when the test is killed.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "tests/support/temporary_directory.h"
#include "tests/whole/availability/child_process.h"

namespace gradmon {

// Call before the first mount: moves this process to a mount namespace of its own, once.
// Later mounts are visible to this process and its children only. Returns "" or the error.
std::string isolate_mounts();

// Fills the file system of a directory to the last byte, with one file in it.
void fill_disk(const std::filesystem::path& directory);
// Removes that file.
void make_room_in(const std::filesystem::path& directory);

// A tmpfs of the given size at a directory.
class SmallDisk {
 public:
  SmallDisk(std::filesystem::path at, std::size_t bytes);
  ~SmallDisk();
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  void fill() { fill_disk(at_); }
  void make_room() { make_room_in(at_); }

 private:
  const std::filesystem::path at_;
};

// A FUSE file system over a temporary directory. While it hangs, no call on it
// returns, as when an NFS server is away.
class HangingDisk {
 public:
  explicit HangingDisk(std::filesystem::path at);
  ~HangingDisk();
  HangingDisk(const HangingDisk&) = delete;
  HangingDisk& operator=(const HangingDisk&) = delete;

  void hang();
  void make_read_only();
  void recover();

 private:
  const std::filesystem::path at_;
  const TemporaryDirectory backing_;
  const TemporaryDirectory control_;
  std::unique_ptr<ChildProcess> server_;
};

}  // namespace gradmon
