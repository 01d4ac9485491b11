// SPDX-License-Identifier: Apache-2.0
#include "hooks/collectives/reading_streams.h"

#include <algorithm>

namespace gradmon {

ReadingStreams& ReadingStreams::instance() {
  // Never destroyed: work may complete while the process exits.
  static auto* const only = new ReadingStreams;
  return *only;
}

std::optional<c10::Stream> ReadingStreams::of(const void* group, const c10::Device& device) {
  const std::lock_guard lock(mutex_);
  const auto is_here = [&](const Lane& lane) { return lane.stream.device() == device; };
  const auto known = std::find_if(lanes_.begin(), lanes_.end(),
                                  [&](const Lane& lane) { return is_here(lane) && lane.group == group; });
  if (known != lanes_.end()) return known->stream;
  std::optional<c10::Stream> stream;
  if (static_cast<std::size_t>(std::count_if(lanes_.begin(), lanes_.end(), is_here)) < kMost) {
    stream = own_stream(device);
  } else {
    const auto oldest = std::find_if(lanes_.begin(), lanes_.end(), is_here);
    stream = oldest->stream;
    lanes_.erase(oldest);
  }
  if (stream) lanes_.push_back({group, *stream});
  return stream;
}

}  // namespace gradmon
