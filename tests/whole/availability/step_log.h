// SPDX-License-Identifier: Apache-2.0
// The time that each step of a rank spent in gradmon, and whether the step was collected.
// The trainer writes the log, the test reads it. A line is in the file as soon as its
// step has ended.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace gradmon {

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
