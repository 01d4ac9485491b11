// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace gradmon {

std::string host_name();
// The kernel's start time of a process, in clock ticks since boot; 0 if no such process runs. Pid and
// start time together identify a process; a pid alone may be reused.
std::uint64_t process_start_of(std::int64_t pid);
// Whether the process with this pid and start time still runs on this host. Start time 0: any process
// with this pid.
bool process_lives(std::int64_t pid, std::uint64_t process_start);
// `bytes` random bytes from the kernel, as lower-case hex digits.
std::string random_hex(std::size_t bytes);
// Wall-clock milliseconds since 1970.
std::int64_t wall_now();

}  // namespace gradmon
