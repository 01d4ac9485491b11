// SPDX-License-Identifier: Apache-2.0
// What a process holds, as /proc tells it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace gradmon {

struct Footprint {
  std::vector<std::string>
      descriptors;  // what each leads to, without numbers: "socket", "anon_inode:[eventfd]"
  int threads = 0;
  std::int64_t address_space = 0;  // bytes
  std::int64_t memory = 0;         // anonymous, resident
};

Footprint footprint(pid_t pid);
// Descriptors of `more` that `less` has not.
std::vector<std::string> beyond(const Footprint& more, const Footprint& less);

}  // namespace gradmon
