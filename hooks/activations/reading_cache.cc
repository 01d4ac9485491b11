// SPDX-License-Identifier: Apache-2.0
#include "hooks/activations/reading_cache.h"

#include <exception>
#include <utility>

#include "hooks/rows/wrapper_tensor.h"
#include "hooks/stats/readable.h"

namespace gradmon {

void ReadingCache::begin_step() {
  if (reuse_ == ReuseReadings::yes && !communication_) communication_.emplace();
  forget();
}

void ReadingCache::forget() {
  const std::lock_guard lock(mutex_);
  known_.clear();
}

std::optional<ReadingCache::Key> ReadingCache::key_of(const at::Tensor& tensor, int micro_step) const {
  if (reuse_ == ReuseReadings::no) return std::nullopt;
  if (tensor.layout() != at::kStrided || !tensor.has_storage() || tensor.is_inference()) return std::nullopt;
  if (!why_no_array(tensor).empty()) return std::nullopt;
  return Key{tensor.storage().unsafeGetStorageImpl(),
             tensor.storage_offset(),
             tensor.sizes().vec(),
             tensor.strides().vec(),
             static_cast<std::int8_t>(tensor.scalar_type()),
             tensor.is_conj(),
             tensor.is_neg(),
             version_of(tensor).value_or(0),
             micro_step};
}

Reading ReadingCache::read(const at::Tensor& tensor, int micro_step, const std::string& name,
                           HookFuse& fuse) {
  if (!is_wrapper(tensor)) return read_plain(tensor, micro_step, name, fuse);
  Unwrapped inner;
  try {
    inner = taken_apart(tensor);
  } catch (const std::exception& error) {
    inner.why = first_line(error.what());
  }
  if (inner.values) {
    Reading reading;
    reading.read(tensor, eps_, name, fuse);
    return reading;
  }
  if (!inner.tensor.defined()) {
    Reading none;
    none.mark_not_applicable(std::move(inner.why));
    return none;
  }
  Reading reading = read_plain(inner.tensor, micro_step, name, fuse);
  reading.scope = std::move(inner.scope);
  return reading;
}

Reading ReadingCache::read_plain(const at::Tensor& tensor, int micro_step, const std::string& name,
                                 HookFuse& fuse) {
  const auto key = key_of(tensor, micro_step);
  const auto calls = [&] { return communication_ ? communication_->calls() : 0; };
  const std::uint64_t calls_before = calls();
  if (key) {
    const std::lock_guard lock(mutex_);
    if (std::exchange(calls_, calls_before) != calls_before) known_.clear();
    const auto found = known_.find(*key);
    if (found != known_.end()) {
      ++counts_.hits;
      Reading again = found->second.reading;
      again.read_at = reading_time();
      return again;
    }
  }
  Reading reading;
  reading.read(tensor, eps_, name, fuse);
  const std::lock_guard lock(mutex_);
  ++counts_.read;
  if (!key || !reading.has_value || calls_before != calls()) return reading;
  known_.emplace(*key, Known{tensor.storage().getWeakStorageImpl(), reading});
  return reading;
}

ReadingCache::Counts ReadingCache::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

}  // namespace gradmon
