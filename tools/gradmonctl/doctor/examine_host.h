// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "tools/gradmonctl/doctor/finding.h"

namespace gradmon {

// What the kernel allows this user, and how much of it is in use.
struct InotifyUse {
  std::int64_t most_instances = 0;
  std::int64_t most_watches = 0;
  std::int64_t instances = 0;  // of this user's processes, as far as they can be read
  std::int64_t watches = 0;
};
InotifyUse inotify_use();  // from /proc; 0 where it cannot be read
Finding examine_inotify(const InotifyUse& use);

// The file descriptors of one process.
struct DescriptorUse {
  std::int64_t soft = 0;
  std::int64_t hard = 0;
  std::int64_t open = 0;
};
std::optional<DescriptorUse> descriptor_use(std::int64_t pid);  // none: it cannot be read
Finding examine_descriptors(const char* whose, const DescriptorUse& use);

}  // namespace gradmon
