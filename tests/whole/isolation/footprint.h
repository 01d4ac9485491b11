// SPDX-License-Identifier: Apache-2.0
// The descriptors, threads and memory of a process, from /proc.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace gradmon {

struct Footprint {
  std::vector<std::string> descriptors;  // the kind of each, sorted: "socket", "file", "anon_inode:[eventfd]"
  int threads = 0;
  std::int64_t address_space = 0;  // bytes
  std::int64_t memory = 0;         // anonymous and resident, bytes
};

Footprint footprint(pid_t pid);
// The descriptors of `more` that are not in `less`.
std::vector<std::string> additional_descriptors(const Footprint& more, const Footprint& less);

}  // namespace gradmon
