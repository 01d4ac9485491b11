// SPDX-License-Identifier: Apache-2.0
#include "runtime/collect/step_rows.h"

#include <exception>

namespace gradmon {
namespace {

struct WaitingRows {
  WaitingRows(std::vector<Record> of_step, std::shared_ptr<std::atomic<std::int64_t>> of_all_steps)
      : rows(std::move(of_step)),
        count(static_cast<std::int64_t>(rows.size())),
        waiting(std::move(of_all_steps)) {
    *waiting += count;
  }
  ~WaitingRows() { *waiting -= count; }
  WaitingRows(const WaitingRows&) = delete;
  WaitingRows& operator=(const WaitingRows&) = delete;

  std::vector<Record> rows;
  const std::int64_t count;
  const std::shared_ptr<std::atomic<std::int64_t>> waiting;
};

}  // namespace

std::uint32_t StepRows::target_id(int vpp_stage, std::string_view name) {
  return names_->intern(name, vpp_stage);
}

std::uint32_t StepRows::shape_id(std::string_view shape) { return names_->intern_shape(shape); }

bool StepRows::push(const Record& record) noexcept {
  try {
    rows_.push_back(record);
  } catch (const std::exception&) {
    return false;
  }
  if (observer_ != nullptr) observer_->on_record(record);
  return true;
}

void StepRows::note_missing_row(Kind kind) noexcept {
  if (observer_ != nullptr) observer_->on_missing_row(kind);
}

std::shared_ptr<std::vector<Record>> StepRows::take() {
  const std::int64_t before = *waiting_;
  if (before > 0 && before + static_cast<std::int64_t>(rows_.size()) > kMostWaiting) return nullptr;
  std::vector<Record> next;
  next.reserve(rows_.size());  // most steps have as many rows
  const auto waiting = std::make_shared<WaitingRows>(std::exchange(rows_, std::move(next)), waiting_);
  return {waiting, &waiting->rows};
}

}  // namespace gradmon
