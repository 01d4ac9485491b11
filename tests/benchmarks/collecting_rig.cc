// SPDX-License-Identifier: Apache-2.0
#include "tests/benchmarks/collecting_rig.h"

#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <utility>

#include "tests/benchmarks/measure/plain_read.h"
#include "tests/benchmarks/measure/range.h"

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

double seconds_of(const std::function<void()>& task) {
  const auto begin = std::chrono::steady_clock::now();
  task();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
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
      benchmark::DoNotOptimize(plain_read(chunks[i].first, static_cast<std::size_t>(chunks[i].second)));
    }
  });
}

CollectingRig::CollectingRig(const std::string& kinds, Step step, TimeBase spent)
    : job_(R"({"dynamic_on": true, "collect_times": 1000000, "step_interval": )" + std::to_string(kInterval) +
           R"(, )"
           R"("ops": ["norm", "min", "max", "mean", "nans", "zeros"], )" +
           kinds + "}"),
      step_(std::move(step)),
      spent_(spent),
      monitor_(job_.config(), job_.options()) {
  keep_freed_memory();
  step_.backward();  // creates the gradients; update() below creates the moments
  monitor_.watch(step_.model, step_.optimizer);
  monitor_.update(step_.optimizer);
  next_ = step_until(monitor_, "on", "");
  effective_ = monitor_.status().effective_step;
  for (int i = 0; i < 4 || !last_but_one_was_collected(); ++i) time_step();
}

bool CollectingRig::last_but_one_was_collected() const {
  const std::int64_t since = next_ - 2 - effective_;
  return since >= 0 && since % kInterval == 0;
}

double CollectingRig::time_step() {
  next_ += 1;
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
    added.idle.push_back(before);
    added.idle.push_back(after);
    added.seconds.push_back(attaching + collected - before - after);
  }
  return added;
}

double CollectingRig::own_share() const {
  // The hub sends the status at least once a second.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (std::chrono::steady_clock::now() < deadline) {
    const Status status = monitor_.status();
    if (!status.ranks.empty() && status.ranks.front().overhead.collected != 0)
      return status.ranks.front().overhead.share * kInterval;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  throw std::runtime_error("the monitor has not measured itself");
}

void CollectingRig::check(std::size_t rows) {
  monitor_.stop();
  const Status status = monitor_.status();
  if (status.ranks.empty() || status.ranks.front().dropped > 0) throw std::runtime_error("rows were dropped");
  if (records_on_disk(job_.output()) < rows) throw std::runtime_error("too little was collected");
}

Figure share_of_read(std::string name, const CollectingRig::Added& added, const std::string& adding,
                     const std::string& of) {
  const Range read = range_of(added.reads);
  std::vector<double> shares;
  for (const double seconds : added.seconds) shares.push_back(seconds / read.median);
  Figure figure;
  figure.name = std::move(name);
  figure.value = range_of(shares).median;
  figure.unit = "times the read";
  figure.goal = Goal{Goal::Sense::at_most, 1.5};
  figure.how = "what collecting " + adding + ", six ops, adds (" +
               text_of(range_of(added.seconds).median * 1000) + " ms), over a plain read of " + of + " (" +
               text_of(read.median * 1000) +
               " ms) on two threads, in turns; minimum, median and maximum of " +
               std::to_string(shares.size()) + ": " + text_of(range_of(shares));
  return figure;
}

}  // namespace gradmon
