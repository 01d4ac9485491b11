// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/database/record_channel.h"

#include <chrono>
#include <utility>

namespace gradmon {
namespace {

constexpr std::chrono::milliseconds kLookAtMeter{50};

}  // namespace

bool RecordChannel::push(RecordBatch batch) {
  std::unique_lock lock(mutex_);
  while (batches_.size() >= kBatches && !meter_.stop) changed_.wait_for(lock, kLookAtMeter);
  if (meter_.stop) return false;
  batches_.push_back(std::move(batch));
  changed_.notify_all();
  return true;
}

void RecordChannel::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

std::optional<RecordBatch> RecordChannel::pop() {
  std::unique_lock lock(mutex_);
  while (batches_.empty() && !closed_ && !meter_.stop) changed_.wait_for(lock, kLookAtMeter);
  if (batches_.empty() || meter_.stop) return std::nullopt;
  std::optional<RecordBatch> batch(std::move(batches_.front()));
  batches_.erase(batches_.begin());
  changed_.notify_all();
  return batch;
}

}  // namespace gradmon
