// SPDX-License-Identifier: Apache-2.0
// The streams on which outputs are read if no wait of the program is reported.
#pragma once

#include <cstddef>
#include <mutex>
#include <optional>
#include <vector>

#include "hooks/device/own_stream.h"

namespace gradmon {

// One stream for each process group; above kMost a new group takes the oldest one's. The calls of a group
// complete in order; on a shared stream, a complete call's reading would wait for other groups. Any thread.
class ReadingStreams {
 public:
  static constexpr std::size_t kMost = 8;  // per device

  static ReadingStreams& instance();
  // nullopt: the device has no stream for us.
  std::optional<c10::Stream> of(const void* group, const c10::Device& device);

 private:
  struct Lane {
    const void* group;
    c10::Stream stream;
  };

  std::mutex mutex_;
  std::vector<Lane> lanes_;  // guarded by mutex_; the newest group last
};

}  // namespace gradmon
