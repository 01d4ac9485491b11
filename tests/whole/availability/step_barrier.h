// SPDX-License-Identifier: Apache-2.0
// Couples the ranks of a job as an allreduce does: no rank goes on before all ranks have
// reached the same step. The state is a file that every process maps; no descriptor stays
// open.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>

namespace gradmon {

class StepBarrier {
 public:
  static constexpr int kMostRanks = 16;

  enum class Open { create, existing };

  // create: ranks 0 to `ranks` - 1 take part, and none has reached a step. existing: `ranks` is ignored.
  StepBarrier(const std::filesystem::path& file, Open open, int ranks);
  ~StepBarrier();
  StepBarrier(const StepBarrier&) = delete;
  StepBarrier& operator=(const StepBarrier&) = delete;

  // The rank takes part from step `first` on.
  void join(int rank, std::int64_t first);
  // Returns when every rank that takes part has reached `step`.
  void wait(int rank, std::int64_t step);
  // The rank takes part no longer. Called by the rank, or by the test if the rank was killed.
  void leave(int rank);

  // The last step of training.
  void end_after(std::int64_t step) { shared_->last = step; }
  std::int64_t last() const { return shared_->last; }
  // The step that the rank has reached; -1: none.
  std::int64_t step(int rank) const { return shared_->slots[rank].step; }
  std::int64_t newest_step() const;

 private:
  struct RankSlot {
    std::atomic<bool> present;
    std::atomic<std::int64_t> step;
  };
  struct Shared {
    std::atomic<std::int64_t> last;
    RankSlot slots[kMostRanks];
  };
  static_assert(std::atomic<std::int64_t>::is_always_lock_free);

  Shared* shared_ = nullptr;
};

}  // namespace gradmon
