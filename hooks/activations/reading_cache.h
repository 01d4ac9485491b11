// SPDX-License-Identifier: Apache-2.0
// Reads tensors. If the plan asks for it, reuses the reading of a tensor that is seen again, as the output of
// one module and the input of the next.
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

#include "hooks/observe/collective_call_counter.h"
#include "hooks/rows/reading.h"

namespace gradmon {

enum class ReuseReadings : bool { no, yes };

// Any thread. With ReuseReadings::yes, two tensors are the same if their storage, offset, shape, strides,
// type, conjugate and negative bits, version and micro step are equal and no communication call was made in
// between, because communication writes to tensors without changing their version. Not detected: other
// writes without a change of version (through `.data`, by NumPy, by a kernel or a communication backend
// called directly, or by a communication call that is in progress while the tensor is read). Storages are
// held weakly: their memory is freed, but their address is not reused.
class ReadingCache {
 public:
  ReadingCache(double eps, ReuseReadings reuse) : eps_(eps), reuse_(reuse) {}

  // begin_step() and end_step(): training thread. A step begins without known readings.
  void begin_step();
  void end_step() noexcept { communication_.reset(); }
  // Returns the known reading, or reads the tensor. Absent if reading failed. Call it within a step.
  Reading read(const at::Tensor& tensor, int micro_step, const std::string& name, HookFuse& fuse);
  // Forgets all known readings.
  void forget();

  struct Counts {
    std::uint64_t read = 0;
    std::uint64_t hits = 0;
  };
  Counts counts() const;

 private:
  using Key = std::tuple<const void*, std::int64_t, std::vector<std::int64_t>, std::vector<std::int64_t>,
                         std::int8_t, bool, bool, std::uint32_t, int>;
  struct Known {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    Reading reading;
  };
  Reading read_plain(const at::Tensor& tensor, int micro_step, const std::string& name, HookFuse& fuse);
  // Empty if the reading must not be reused.
  std::optional<Key> key_of(const at::Tensor& tensor, int micro_step) const;

  const double eps_;
  const ReuseReadings reuse_;
  // Changed by the training thread, while no read() runs. Empty without reuse: counting costs each operator.
  std::optional<CollectiveCallCounter> communication_;

  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::uint64_t calls_ = 0;  // communication calls at the last read(); if more, known_ is cleared
  std::map<Key, Known> known_;
  Counts counts_;
};

}  // namespace gradmon
