// SPDX-License-Identifier: Apache-2.0
#include "tests/benchmarks/collecting_rig.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <malloc.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <stdexcept>
#include <utility>

namespace gradmon {
namespace {

constexpr int kInterval = 5;

// Otherwise glibc hands memory back and faults it in again, page by page, in some steps and not in others:
// more than what is measured.
void keep_freed_memory() {
  constexpr int kMostMiB = 1024;
  mallopt(M_TRIM_THRESHOLD, kMostMiB << 20);
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the most that glibc takes
}

}  // namespace

MonitorOptions ScratchJob::options() const {
  MonitorOptions options;
  options.rank = 0;
  options.world_size = 1;
  options.output_dir = output();
  options.dynamic = true;
  return options;
}

std::int64_t step_until(Monitor& monitor, const std::string& state, const std::string& reason) {
  Status status;
  std::int64_t steps = -1;
  const auto reached = [&] {
    if (++steps > 0) monitor.step();
    status = monitor.status();
    return status.state == state && (reason.empty() || status.reason == reason);
  };
  if (eventually(reached, std::chrono::seconds(20))) return steps;
  throw std::runtime_error("the monitor did not reach state " + state + "; it is " + status.state + ", " +
                           status.reason);
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

TorchThreads::TorchThreads(int threads, Processors processors) : before_(at::get_num_threads()) {
  at::set_num_threads(threads);
  sched_getaffinity(0, sizeof allowed_, &allowed_);
  if (processors == Processors::all) return;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<unsigned>(sched_getcpu()), &one);
  sched_setaffinity(0, sizeof one, &one);
}

TorchThreads::~TorchThreads() {
  sched_setaffinity(0, sizeof allowed_, &allowed_);
  at::set_num_threads(before_);
}

void read_all(const std::vector<at::Tensor>& tensors) {
  constexpr std::int64_t chunk = std::int64_t{1} << 20;
  std::vector<std::pair<const char*, std::int64_t>> chunks;
  for (const at::Tensor& tensor : tensors) {
    const auto bytes = static_cast<std::int64_t>(tensor.nbytes());
    for (std::int64_t at = 0; at < bytes; at += chunk) {
      chunks.emplace_back(static_cast<const char*>(tensor.data_ptr()) + at, std::min(chunk, bytes - at));
    }
  }
  at::parallel_for(0, static_cast<std::int64_t>(chunks.size()), 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      plain_read(chunks[i].first, static_cast<std::size_t>(chunks[i].second));
    }
  });
}

CollectingRig::CollectingRig(const std::string& kinds, Step step, TimeBase spent)
    : job_(R"({"dynamic_on": true, "collect_times": 1000000, "step_interval": )" + std::to_string(kInterval) +
           R"(, "ops": ["norm", "min", "max", "mean", "nans", "zeros"], )" + kinds + "}"),
      step_(std::move(step)),
      spent_(spent),
      monitor_(job_.config(), job_.options()) {
  keep_freed_memory();
  step_.backward();  // creates the gradients; update() below creates the moments
  monitor_.watch(step_.model, step_.optimizer);
  monitor_.update(step_.optimizer);
  const std::int64_t steps = step_until(monitor_, "on", "");
  const std::int64_t collected = monitor_.status().effective_step;
  const std::int64_t begin = std::max(steps + 4, collected + 2);
  const std::int64_t late = (begin - collected - 2) % kInterval;
  // Ends so that the last step but one has been collected.
  for (std::int64_t i = steps; i < begin + (kInterval - late) % kInterval; ++i) time_step();
}

double CollectingRig::time_step() {
  const double begin = seconds_now(spent_);
  step_.backward();
  monitor_.step(step_.optimizer);
  return seconds_now(spent_) - begin;
}

CollectingRig::Added CollectingRig::measure(int rounds, const std::function<void()>& read) {
  Added added;
  for (int i = 0; i < rounds; ++i) {
    added.reads.push_back(seconds_of(read));
    time_step();  // Not counted: `read` has filled the caches.
    const double before = time_step();
    const double attaching = time_step();  // Ends with the boundary that begins the collected step.
    const double collected = time_step();
    const double after = time_step();
    added.idle.insert(added.idle.end(), {before, after});
    added.seconds.push_back(attaching + collected - before - after);
  }
  return added;
}

double CollectingRig::own_share() const {
  Status status;
  const bool is_known = eventually(  // the hub sends the status at least once a second
      [&] {
        status = monitor_.status();
        return !status.ranks.empty() && status.ranks.front().overhead.collected != 0;
      },
      std::chrono::seconds(10));
  if (!is_known) throw std::runtime_error("the monitor has not measured itself");
  return status.ranks.front().overhead.share * kInterval;
}

void CollectingRig::check(std::size_t rows) {
  monitor_.stop();
  const Status status = monitor_.status();
  if (status.ranks.empty() || status.ranks.front().dropped > 0) throw std::runtime_error("rows were dropped");
  if (records_on_disk(job_.output()) < rows) throw std::runtime_error("too little was collected");
}

}  // namespace gradmon
