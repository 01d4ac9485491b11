// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace gradmon {

std::string host_name();
// The kernel's start time of a process (clock ticks since boot), 0 where there
// is none: a pid alone may have been given to another process since.
std::uint64_t process_start_of(std::int64_t pid);
// Whether that very process still runs on this host.
bool process_lives(std::int64_t pid, std::uint64_t process_start);
// `bytes` random bytes from the kernel, in lower-case hex.
std::string random_hex(std::size_t bytes);
// Wall-clock milliseconds since 1970.
std::int64_t wall_now();

}  // namespace gradmon
