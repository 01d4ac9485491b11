// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "tools/gradmonctl/doctor/finding.h"

namespace gradmon {

// The kernel's inotify limits per user, and this user's usage.
struct InotifyUse {
  std::int64_t most_instances = 0;
  std::int64_t most_watches = 0;
  std::int64_t instances = 0;  // used by this user's readable processes
  std::int64_t watches = 0;
};
InotifyUse inotify_use();  // from /proc; an unreadable value is 0
Finding examine_inotify(const InotifyUse& use);

// The limits and the number of open file descriptors of one process.
struct DescriptorUse {
  std::int64_t soft = 0;
  std::int64_t hard = 0;
  std::int64_t open = 0;
};
std::optional<DescriptorUse> descriptor_use(std::int64_t pid);  // nullopt: unreadable
Finding examine_descriptors(const std::string& whose, const DescriptorUse& use);

}  // namespace gradmon
