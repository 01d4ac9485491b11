// SPDX-License-Identifier: Apache-2.0
// Readings of tensors that may be met again: as one module's output and the next one's input.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>
#include <vector>

#include "hooks/observe/communication_count.h"
#include "hooks/rows/reading.h"

namespace gradmon {

// Any thread. Tensors are the same whose storage, offset, shape, strides, type,
// version and micro step are, with no communication in between: its calls write
// without moving a version. Other writes that do not (through `.data`, by a
// kernel or a communication backend called directly, or by a call that is still
// going on while the tensor is read) are not noticed. Storages are held weakly:
// their memory goes, their identity is not given to another.
class KnownReadings {
 public:
  explicit KnownReadings(double eps) : eps_(eps) {}

  // The training thread's: of a step nothing is known when it begins.
  void begin_step();
  void end_step() noexcept { communication_.reset(); }
  // Within a step. Reads the tensor, if it has not been read. Absent where
  // reading failed.
  Reading take(const at::Tensor& tensor, int micro_step, const std::string& name, HookFuse& fuse);

  struct Counts {
    std::uint64_t read = 0;
    std::uint64_t known = 0;
  };
  Counts counts() const;

 private:
  using Key = std::tuple<const void*, std::int64_t, std::vector<std::int64_t>, std::vector<std::int64_t>,
                         std::int8_t, std::uint32_t, int>;
  struct Known {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    Reading reading;
  };
  static std::optional<Key> key_of(const at::Tensor& tensor, int micro_step);

  const double eps_;
  // The training thread's, when nobody reads.
  std::optional<CommunicationCount> communication_;

  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::uint64_t calls_ = 0;  // of communication, before known_ was read
  std::map<Key, Known> known_;
  Counts counts_;
};

}  // namespace gradmon
