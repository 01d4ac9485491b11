// SPDX-License-Identifier: Apache-2.0
#include "tests/whole/availability/stalls.h"

#include <algorithm>
#include <sstream>

namespace gradmon {
namespace {

constexpr std::int64_t kNoticed = 5'000;  // us; shorter ones are no stalls

std::int64_t overlap(const TrainingJob::RankProcess& rank_process, const StepLine& line) {
  std::int64_t sum = 0;
  for (const auto& [from, to] : rank_process.stopped)
    sum += std::max<std::int64_t>(0, std::min(to, line.returned_at) - std::max(from, line.called_at));
  return sum;
}

std::int64_t median(std::vector<std::int64_t> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// The time in which at least one rank stalled, us.
std::int64_t total_stall_time(std::vector<Stall> stalls) {
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
    for (const StepLine& line : content.lines) taken.push_back(line.returned_at - line.called_at);
    const std::int64_t normal = median(taken);
    for (const StepLine& line : content.lines) {
      if (line.returned_at < from || line.called_at > until) continue;
      const std::int64_t stopped = overlap(job.rank_process(rank), line);
      const std::int64_t more = line.returned_at - line.called_at - normal - line.run_delay - stopped;
      if (more >= kNoticed) found.push_back({rank, line.step, line.called_at + stopped, more});
    }
  }
  return found;
}

std::vector<std::string> bound_violations(const std::vector<Stall>& stalls, const StallBounds& bounds) {
  std::vector<std::string> violations;
  const auto us = [](std::chrono::milliseconds time) { return time.count() * 1000; };
  std::map<int, int> long_ones;  // by rank
  for (const Stall& stall : stalls) {
    if (stall.took > us(bounds.longest))
      violations.push_back("too long a stall: " + to_string(std::vector{stall}));
    if (stall.took > us(bounds.all_but_one)) long_ones[stall.rank] += 1;
  }
  for (const auto& [rank, count] : long_ones) {
    if (count > 1)
      violations.push_back("rank " + std::to_string(rank) + " stood " + std::to_string(count) +
                           " times for more than " + std::to_string(bounds.all_but_one.count()) + " ms");
  }
  if (const std::int64_t sum = total_stall_time(stalls); sum > us(bounds.total))
    violations.push_back("training stood " + std::to_string(sum / 1000) + " ms in all");
  return violations;
}

std::string to_string(const std::vector<Stall>& stalls) {
  std::ostringstream text;
  for (const Stall& stall : stalls)
    text << "rank " << stall.rank << " before step " << stall.step + 1 << ": " << stall.took / 1000
         << " ms; ";
  return text.str();
}

}  // namespace gradmon
