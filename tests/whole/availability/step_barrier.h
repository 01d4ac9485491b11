// SPDX-License-Identifier: Apache-2.0
// Couples the ranks of a job as an allreduce does: none goes on before all of them
// have come to the same step. A file that every process maps; no descriptor is kept.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>

namespace gradmon {

class StepBarrier {
 public:
  static constexpr int kMostRanks = 16;

  enum class Open { create, existing };

  // create: all of `ranks` are expected, and nobody has come.
  StepBarrier(const std::filesystem::path& file, Open open, int ranks);
  ~StepBarrier();
  StepBarrier(const StepBarrier&) = delete;
  StepBarrier& operator=(const StepBarrier&) = delete;

  // A rank: it takes part from `first` on.
  void join(int rank, std::int64_t first);
  // A rank: returns when all that take part have come to `step`.
  void wait(int rank, std::int64_t step);
  // A rank, or the test for a rank that died: nobody waits for it any more.
  void leave(int rank);

  // Ranks end after this step.
  void end_after(std::int64_t step) { shared_->last = step; }
  std::int64_t last() const { return shared_->last; }
  // The step at which a rank has arrived; -1: none.
  std::int64_t step(int rank) const { return shared_->seats[rank].step; }
  std::int64_t furthest() const;
  bool takes_part(int rank) const { return shared_->seats[rank].present; }

 private:
  struct Seat {
    std::atomic<bool> present;
    std::atomic<std::int64_t> step;
  };
  struct Shared {
    std::atomic<std::int64_t> last;
    Seat seats[kMostRanks];
  };
  static_assert(std::atomic<std::int64_t>::is_always_lock_free);

  Shared* shared_ = nullptr;
};

}  // namespace gradmon
