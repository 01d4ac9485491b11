// SPDX-License-Identifier: Apache-2.0
#include "hooks/activations/activation_rows.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "hooks/observe/collective_call.h"
#include "hooks/observe/shared_callback.h"
#include "hooks/rows/wrapper_tensor.h"
#include "hooks/stats/readable.h"

namespace gradmon {
namespace {

// Global, because torch's callback is a plain function.
std::atomic<std::uint64_t> calls_made{0};

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& function) {
  if (is_collective(function.name()) || is_symmetric_memory(function.name()))
    calls_made.fetch_add(1, std::memory_order_acq_rel);
  return nullptr;
}

SharedCallback& callback() {
  static auto* const only =
      new SharedCallback(at::RecordFunctionCallback(on_start).scopes({at::RecordScope::FUNCTION}));
  return *only;
}

}  // namespace

CollectiveCallCounter::CollectiveCallCounter() { callback().add_user(); }

CollectiveCallCounter::~CollectiveCallCounter() { callback().remove_user(); }

std::uint64_t CollectiveCallCounter::calls() const noexcept {
  return calls_made.load(std::memory_order_acquire);
}

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

void ActivationRows::begin_step() {
  gate_.close();
  cache_.begin_step();
  take_rows();
  step_.store(gate_.open(), std::memory_order_release);
}

std::vector<ActivationRows::Row> ActivationRows::take_rows() {
  const std::lock_guard lock(mutex_);
  gradients_.clear();
  return std::exchange(rows_, {});
}

void ActivationRows::add(Row row, const at::Tensor& tensor, const ScopeText& scope) {
  if (is_full()) return;
  row.reading = cache_.read(tensor, row.micro_step, row.name, fuse_);
  if (scope) row.reading.scope = scope;
  keep(std::move(row));
}

bool ActivationRows::is_full() {
  const std::lock_guard lock(mutex_);
  return limit_.reached(rows_.size());
}

void ActivationRows::note_not_applicable(const Row& row, const std::string& why) {
  const std::lock_guard lock(mutex_);
  not_applicable_.emplace(std::pair(row.vpp_stage, row.name), why);
}

ActivationRows::Reasons ActivationRows::take_not_applicable() {
  const std::lock_guard lock(mutex_);
  return std::exchange(not_applicable_, {});
}

void ActivationRows::drop(int vpp_stage, int micro_step) {
  const std::lock_guard lock(mutex_);
  rows_.erase(std::remove_if(
                  rows_.begin(), rows_.end(),
                  [&](const Row& row) { return row.vpp_stage == vpp_stage && row.micro_step == micro_step; }),
              rows_.end());
  gradients_.clear();
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const Row& row = rows_[i];
    if (row.kind == Kind::actv_grad)
      gradients_.emplace(std::tuple(row.vpp_stage, row.name, row.micro_step), i);
  }
}

void ActivationRows::keep(Row row) {
  const std::lock_guard lock(mutex_);
  if (row.kind == Kind::actv_grad) {
    const auto [known, fresh] =
        gradients_.try_emplace({row.vpp_stage, row.name, row.micro_step}, rows_.size());
    if (!fresh) {
      rows_[known->second] = std::move(row);
      return;
    }
  }
  rows_.push_back(std::move(row));
}

}  // namespace gradmon
