// SPDX-License-Identifier: Apache-2.0
#include "tests/whole/availability/stalls.h"

#include <algorithm>
#include <sstream>

namespace gradmon {
namespace {

constexpr std::int64_t kNoticed = 5'000;  // us

std::int64_t overlap(const TrainingJob::Life& life, const StepLine& line) {
  std::int64_t sum = 0;
  for (const auto& [from, to] : life.stopped)
    sum += std::max<std::int64_t>(0, std::min(to, line.back) - std::max(from, line.called));
  return sum;
}

std::int64_t median(std::vector<std::int64_t> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Ranks that stand at the same time cost training that time once.
std::int64_t time_together(std::vector<Stall> stalls) {
  std::sort(stalls.begin(), stalls.end(), [](const Stall& a, const Stall& b) { return a.began < b.began; });
  std::int64_t sum = 0;
  std::int64_t end = 0;
  for (const Stall& stall : stalls) {
    const std::int64_t from = std::max(end, stall.began);
    const std::int64_t to = stall.began + stall.took;
    sum += std::max<std::int64_t>(0, to - from);
    end = std::max(end, to);
  }
  return sum;
}

}  // namespace

std::vector<Stall> stalls(TrainingJob& job, std::int64_t from, std::int64_t until) {
  std::vector<Stall> found;
  for (const auto& [rank, content] : job.steps()) {
    std::vector<std::int64_t> taken;
    for (const StepLine& line : content.lines) taken.push_back(line.back - line.called);
    const std::int64_t normal = median(taken);
    for (const StepLine& line : content.lines) {
      if (line.back < from || line.called > until) continue;
      const std::int64_t stopped = overlap(job.life(rank), line);
      const std::int64_t more = line.back - line.called - normal - line.run_delay - stopped;
      if (more >= kNoticed) found.push_back({rank, line.step, line.called + stopped, more});
    }
  }
  return found;
}

std::vector<std::string> broken_bounds(const std::vector<Stall>& stalls, const StallBounds& bounds) {
  std::vector<std::string> broken;
  const auto us = [](std::chrono::milliseconds time) { return time.count() * 1000; };
  std::map<int, int> long_ones;  // by rank
  for (const Stall& stall : stalls) {
    if (stall.took > us(bounds.longest))
      broken.push_back("too long a stall: " + to_string(std::vector{stall}));
    if (stall.took > us(bounds.otherwise)) long_ones[stall.rank] += 1;
  }
  for (const auto& [rank, count] : long_ones) {
    if (count > 1)
      broken.push_back("rank " + std::to_string(rank) + " stood " + std::to_string(count) +
                       " times for more than " + std::to_string(bounds.otherwise.count()) + " ms");
  }
  if (const std::int64_t sum = time_together(stalls); sum > us(bounds.together))
    broken.push_back("training stood " + std::to_string(sum / 1000) + " ms in all");
  return broken;
}

std::string to_string(const std::vector<Stall>& stalls) {
  std::ostringstream text;
  for (const Stall& stall : stalls)
    text << "rank " << stall.rank << " before step " << stall.step + 1 << ": " << stall.took / 1000
         << " ms; ";
  return text.str();
}

}  // namespace gradmon
