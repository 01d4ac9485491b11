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

#include "hooks/reading.h"

namespace gradmon {

// Any thread. Tensors are the same whose storage, offset, shape, strides, type,
// version and micro step are. Storages are held weakly: their memory goes, their
// identity is not given to another.
class KnownReadings {
 public:
  explicit KnownReadings(double eps) : eps_(eps) {}

  void forget();
  // Reads the tensor, if it has not been read. Absent where reading failed.
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

  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::map<Key, Known> known_;
  Counts counts_;
};

}  // namespace gradmon
