// SPDX-License-Identifier: Apache-2.0
// A temporary directory with a config file; the destructor removes it.
#pragma once

#include <gradmon/monitor.h>

#include <filesystem>
#include <string>

namespace gradmon {

class ScratchJob {
 public:
  explicit ScratchJob(const std::string& config);
  ~ScratchJob();
  ScratchJob(const ScratchJob&) = delete;
  ScratchJob& operator=(const ScratchJob&) = delete;

  std::filesystem::path config() const { return path_ / "monitor_config.json"; }
  std::filesystem::path output() const { return path_ / "monitor_output"; }
  // The options of a job with one rank in dynamic mode.
  MonitorOptions options() const;

 private:
  std::filesystem::path path_;
};

// Steps the monitor until its status has this state and reason ("": any reason). Returns the
// number of steps. Throws std::runtime_error after 20 s.
std::int64_t step_until(Monitor& monitor, const std::string& state, const std::string& reason);

// The number of rows in all CSV files below the directory.
std::size_t records_on_disk(const std::filesystem::path& output);

}  // namespace gradmon
