// SPDX-License-Identifier: Apache-2.0
// A directory of a benchmark's own, gone with it, with a config file in it.
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
  // Of a job with one rank in dynamic mode.
  MonitorOptions options() const;

 private:
  std::filesystem::path path_;
};

// Steps the monitor until its status says so; throws std::runtime_error after 20 s.
void step_until(Monitor& monitor, const std::string& state, const std::string& reason);

}  // namespace gradmon
