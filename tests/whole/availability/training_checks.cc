// SPDX-License-Identifier: Apache-2.0
#include "tests/whole/availability/training_checks.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>

#include "tests/support/real_job.h"
#include "tests/support/temporary_directory.h"
#include "tests/whole/availability/child_process.h"

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

namespace {

using Steps = std::set<std::int64_t>;

// The revisions that were in force on a rank, by the first step of each.
using InForce = std::map<std::int64_t, std::uint64_t>;

InForce in_force(const StepLogContent& content) {
  InForce found;
  for (const StepLine& line : content.lines) {
    if (line.applied_step >= 0 && line.revision > 0) found[line.applied_step] = line.revision;
  }
  return found;
}

// The revision in force at `step`; 0: unknown. `all`: the revisions that any rank had in
// force. The status of a rank may miss a revision that was in force for a short time: if
// `all` has a revision between two known ones, the answer is unknown.
std::uint64_t revision_at(const InForce& known, std::int64_t step, const std::set<std::uint64_t>& all) {
  const auto after = known.upper_bound(step);
  if (after == known.begin()) return 0;
  const std::uint64_t found = std::prev(after)->second;
  const auto hidden = all.upper_bound(found);
  const bool may_be_another = hidden != all.end() && (after == known.end() || *hidden < after->second);
  return may_be_another ? 0 : found;
}

// After an exec the process has no revision in force until it learns one, although the process before may
// have applied one at the same step.
bool has_learned_at_start(const StepLogContent& content) {
  return std::any_of(content.lines.begin(), content.lines.end(), [&](const StepLine& line) {
    return line.step >= content.start && line.applied_step == content.start && line.revision > 0;
  });
}

// A rank that lapses keeps its revision, but reports a new applied step.
bool has_lapsed(const InForce& known) {
  std::set<std::uint64_t> seen;
  return std::any_of(known.begin(), known.end(),
                     [&](const auto& entry) { return !seen.insert(entry.second).second; });
}

}  // namespace

std::vector<int> lapsed_ranks(TrainingJob& job) {
  std::vector<int> lapsed;
  for (const auto& [rank, content] : job.steps()) {
    const bool says_so =
        read_text(job.rank_process(rank).output).find("rank " + std::to_string(rank) + ": off: ") !=
        std::string::npos;
    if (says_so || has_lapsed(in_force(content))) lapsed.push_back(rank);
  }
  return lapsed;
}

std::vector<std::string> disagreements(TrainingJob& job) {
  const std::vector<int> lapsed = lapsed_ranks(job);
  std::map<int, InForce> known;
  std::map<int, Steps> collected;
  std::map<int, std::pair<std::int64_t, std::int64_t>> run;
  for (const auto& [rank, content] : job.steps()) {
    if (std::count(lapsed.begin(), lapsed.end(), rank) != 0 || content.lines.empty()) continue;
    known[rank] = in_force(content);
    for (const auto& [step, revision] : job.applied(rank)) known[rank][step] = revision;
    if (!has_learned_at_start(content)) known[rank][content.start] = 0;
    run[rank] = {content.lines.front().step, content.lines.back().step};
    for (const StepLine& line : content.lines) {
      if (line.collected) collected[rank].insert(line.step);
    }
  }
  std::set<std::uint64_t> all;
  for (const auto& [rank, revisions] : known) {
    for (const auto& [step, revision] : revisions) all.insert(revision);
  }
  std::vector<std::string> found;
  for (const auto& [rank, steps] : collected) {
    for (const auto& [other, other_run] : run) {
      if (other == rank) continue;
      for (const std::int64_t step : steps) {
        if (step < other_run.first || step > other_run.second) continue;
        const std::uint64_t own = revision_at(known[rank], step, all);
        const std::uint64_t others = revision_at(known[other], step, all);
        const bool both = collected[other].count(step) != 0;
        const std::string who = "step " + std::to_string(step) + ": rank " + std::to_string(rank) +
                                " under revision " + std::to_string(own) + ", rank " + std::to_string(other);
        if (both && own != 0 && others != 0 && own != others) {
          found.push_back(who + " under " + std::to_string(others));
        } else if (!both && own != 0 && own == others) {
          found.push_back(who + " not, with the same revision in force");
        } else {
          continue;
        }
        break;  // One line for a pair of ranks is enough.
      }
    }
  }
  return found;
}

namespace fs = std::filesystem;

const StepLogContent& BareTraining::run(std::int64_t first, std::int64_t last) {
  StepLogContent& known = runs_[first];
  if (known.parameters.count(last) != 0) return known;
  const fs::path steps = scratch_ / ("bare-" + std::to_string(first) + "-" + std::to_string(last));
  ProcessOptions options;
  options.command = {program("availability-trainer"),
                     "--bare",
                     "1",
                     "--every-hash",
                     "1",
                     "--step-ms",
                     "0",
                     "--step-log",
                     steps.string(),
                     "--start-iteration",
                     std::to_string(first),
                     "--steps",
                     std::to_string(last - first + 1)};
  options.output = scratch_ / "bare";
  options.environment = {{"OMP_NUM_THREADS", "1"}};  // as in TrainingJob
  ChildProcess child(options);
  if (child.wait(std::chrono::seconds(60)) != 0)
    throw std::runtime_error("the bare trainer failed: " + read_text(options.output));
  known = read_step_log(steps);
  return known;
}

std::vector<std::string> different_ends(TrainingJob& job, const std::map<int, std::optional<int>>& codes,
                                        const std::set<int>& not_compared) {
  std::vector<std::string> different;
  BareTraining bare(job.places().logs);
  for (const auto& [rank, content] : job.steps()) {
    if (not_compared.count(rank) != 0) continue;
    const std::string who = job.options().launch_id + " rank " + std::to_string(rank);
    const auto code = codes.at(rank);
    if (code != 0)
      different.push_back(who + (code ? " ended with " + std::to_string(*code) : " does not end"));
    if (!content.end || content.lines.empty()) continue;
    const std::int64_t last = content.lines.back().step;
    const StepLogContent& plain = bare.run(content.start, last);
    if (content.end->parameters != plain.parameters.at(last))
      different.push_back(who + " has other parameters than without gradmon");
    if (content.end->rand_and_umask != plain.end->rand_and_umask)
      different.push_back(who + ": rand() and umask are " + content.end->rand_and_umask + ", not " +
                          plain.end->rand_and_umask);
  }
  return different;
}

}  // namespace gradmon
