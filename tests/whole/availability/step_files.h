// SPDX-License-Identifier: Apache-2.0
// Files that the trainer and the test share: a StepBarrier, which couples the ranks of a job as an allreduce
// does, and the StepLog of each rank.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

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

struct StepLine {
  std::int64_t step = 0;
  std::int64_t called_at = 0;    // when monitor.step() was called, us of the monotonic clock
  std::int64_t returned_at = 0;  // when it returned
  std::int64_t run_delay = 0;    // us between the two in which the thread waited for a CPU
  bool collected = false;
  // From Monitor::status() after the step; at most 100 ms old.
  std::uint64_t revision = 0;
  std::int64_t applied_step = -1;
};

// The state of a training process at its end.
struct TrainingEnd {
  std::string parameters;      // their hash
  std::string rand_and_umask;  // the next numbers of rand(), and the umask
};

struct StepLogContent {
  std::vector<StepLine> lines;
  std::int64_t start = 0;                          // the first step of the process that wrote last
  std::optional<TrainingEnd> end;                  // unset: the process did not come to its end
  std::map<std::int64_t, std::string> parameters;  // their hash by step; empty without --every-hash
};

class StepLog {
 public:
  explicit StepLog(const std::filesystem::path& path);
  ~StepLog();
  StepLog(const StepLog&) = delete;
  StepLog& operator=(const StepLog&) = delete;

  // Called before and after monitor.step(), by the training thread.
  void before_step();
  void after_step(StepLine line);
  void start(std::int64_t step);
  void parameters(std::int64_t step, const std::string& hash);
  void end(const TrainingEnd& end);

 private:
  std::int64_t run_delay() const;  // us, of this thread since it started
  void write(const std::string& text);

  const int file_;
  const int scheduling_;
  std::int64_t called_ = 0;
  std::int64_t delay_before_ = 0;
};

std::int64_t monotonic_us();
StepLogContent read_step_log(const std::filesystem::path& path);

}  // namespace gradmon
