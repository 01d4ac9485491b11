// SPDX-License-Identifier: Apache-2.0
#include "tests/benchmarks/measure/scratch_job.h"

#include <stdlib.h>

#include <chrono>
#include <fstream>
#include <stdexcept>
#include <system_error>
#include <thread>

namespace gradmon {

ScratchJob::ScratchJob(const std::string& config) {
  std::string name = (std::filesystem::temp_directory_path() / "gradmon-bench-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::system_error(errno, std::generic_category(), name);
  path_ = name;
  std::ofstream(this->config()) << config;
}

ScratchJob::~ScratchJob() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

MonitorOptions ScratchJob::options() const {
  MonitorOptions options;
  options.rank = 0;
  options.world_size = 1;
  options.output_dir = output();
  options.dynamic = true;
  return options;
}

std::int64_t step_until(Monitor& monitor, const std::string& state, const std::string& reason) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  for (std::int64_t steps = 0;; ++steps) {
    const Status status = monitor.status();
    if (status.state == state && (reason.empty() || status.reason == reason)) return steps;
    if (std::chrono::steady_clock::now() > deadline) {
      throw std::runtime_error("the monitor did not reach state " + state + "; it is " + status.state + ", " +
                               status.reason);
    }
    monitor.step();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

std::size_t records_on_disk(const std::filesystem::path& output) {
  std::size_t rows = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(output)) {
    if (entry.path().extension() != ".csv") continue;
    std::ifstream file(entry.path());
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) ++rows;
  }
  return rows;
}

}  // namespace gradmon
