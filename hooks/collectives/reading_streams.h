// SPDX-License-Identifier: Apache-2.0
// The streams on which outputs of calls are read for which nothing tells that the program has waited.
#pragma once

#include <cstddef>
#include <mutex>
#include <optional>
#include <vector>

#include "hooks/device/own_stream.h"

namespace gradmon {

// As far as there are, another one for each process group, whose calls are over in the order in which they
// are made: on one stream, the readings of a call that is over would wait for other groups. Any thread.
class ReadingStreams {
 public:
  static constexpr std::size_t kMost = 8;  // for each device

  static ReadingStreams& instance();
  // Empty: the device has no streams for us.
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
