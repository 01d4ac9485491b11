// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>
#include <sys/mount.h>

#include <filesystem>
#include <functional>
#include <string>
#include <thread>

namespace gradmon {

// Calls `use` in a thread in which `directory` is a disk (tmpfs) of so many bytes. The disk exists in a mount
// namespace of that thread and ends with it. False: `use` was not called, because mounting needs root.
inline bool on_small_disk(const std::filesystem::path& directory, std::size_t bytes,
                          const std::function<void()>& use) {
  bool mounted = false;
  std::thread([&] {
    const std::string size = "size=" + std::to_string(bytes);
    mounted = ::unshare(CLONE_NEWNS) == 0 &&
              ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
              ::mount("none", directory.c_str(), "tmpfs", 0, size.c_str()) == 0;
    if (mounted) use();
  }).join();
  return mounted;
}

}  // namespace gradmon
