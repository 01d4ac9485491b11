// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace gradmon {

std::string host_name();
// The kernel's start time of a process, in clock ticks since boot; 0 if no such process runs. Pid and
// start time together identify a process; a pid alone may be reused.
std::uint64_t process_start_ticks(std::int64_t pid);
// `bytes` random bytes of libsodium, as lower-case hex digits.
std::string random_hex(std::size_t bytes);
// Wall-clock milliseconds since 1970.
std::int64_t wall_now();

}  // namespace gradmon
