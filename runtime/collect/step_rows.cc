// SPDX-License-Identifier: Apache-2.0
#include "runtime/collect/step_rows.h"

#include <exception>

namespace gradmon {
namespace {

struct WaitingRows {
  WaitingRows(StepRows::Taken of_step, std::shared_ptr<std::atomic<std::int64_t>> of_all_steps)
      : taken(std::move(of_step)),
        count(static_cast<std::int64_t>(taken.rows.size())),
        waiting(std::move(of_all_steps)) {
    *waiting += count;
  }
  ~WaitingRows() { *waiting -= count; }
  WaitingRows(const WaitingRows&) = delete;
  WaitingRows& operator=(const WaitingRows&) = delete;

  StepRows::Taken taken;
  const std::int64_t count;
  const std::shared_ptr<std::atomic<std::int64_t>> waiting;
};

}  // namespace

std::uint32_t StepRows::target_id(int vpp_stage, std::string_view name) {
  return names_->intern(name, vpp_stage);
}

std::uint32_t StepRows::shape_id(std::string_view shape) { return names_->intern_shape(shape); }

bool StepRows::push(const Record& record) noexcept {
  if (record.target == 0) return true;  // dropped: NameTable::intern()
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

bool StepRows::take_late(const std::shared_ptr<LateValues>& late) noexcept {
  if (observer_ != nullptr && observer_->takes_norms()) return false;
  late_ = late;
  return true;
}

std::vector<Record>& StepRows::Taken::completed() {
  complete_records(rows, std::exchange(late, nullptr).get());
  return rows;
}

std::shared_ptr<StepRows::Taken> StepRows::take() {
  const std::int64_t before = *waiting_;
  if (before > 0 && before + static_cast<std::int64_t>(rows_.size()) > kMostWaiting) return nullptr;
  std::vector<Record> next;
  next.reserve(rows_.size());  // most steps have as many rows
  const auto waiting = std::make_shared<WaitingRows>(
      Taken{std::exchange(rows_, std::move(next)), std::exchange(late_, nullptr)}, waiting_);
  return {waiting, &waiting->taken};
}

}  // namespace gradmon
