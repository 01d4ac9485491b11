// SPDX-License-Identifier: Apache-2.0
// What a rank's training has felt of gradmon, step by step: written by the trainer,
// read by the test. A line is in the file as soon as its step has ended.
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
  std::int64_t called = 0;  // monitor.step(), us of the monotonic clock
  std::int64_t back = 0;
  std::int64_t run_delay = 0;  // us of those that it was ready to run and had no CPU
  bool collected = false;
  // What the rank's own status said after the step, at most 100 ms old.
  std::uint64_t revision = 0;
  std::int64_t applied_step = -1;
};

// How training ended; none where the process did not come to its end.
struct TrainingEnd {
  std::string parameters;  // hash
  std::string random;      // the next numbers of rand(), and the umask
};

struct StepLogContent {
  std::vector<StepLine> lines;
  std::int64_t start = 0;  // the first step of the process that wrote last
  std::optional<TrainingEnd> end;
  std::map<std::int64_t, std::string> parameters;  // by step, where the trainer was asked for them
};

class StepLog {
 public:
  explicit StepLog(const std::filesystem::path& path);
  ~StepLog();
  StepLog(const StepLog&) = delete;
  StepLog& operator=(const StepLog&) = delete;

  // Around monitor.step(), by the training thread.
  void call();
  void back(StepLine line);
  void start(std::int64_t step);
  void parameters(std::int64_t step, const std::string& hash);
  void end(const TrainingEnd& end);

 private:
  std::int64_t run_delay() const;  // us, of this thread so far
  void write(const std::string& text);

  const int file_;
  const int scheduling_;
  std::int64_t called_ = 0;
  std::int64_t delay_before_ = 0;
};

std::int64_t monotonic_us();
StepLogContent read_step_log(const std::filesystem::path& path);

}  // namespace gradmon
