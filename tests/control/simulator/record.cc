// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "tests/control/simulator/record.h"

namespace gradmon {
namespace {

using Commits = std::vector<const Verdict*>;

std::string at_step(const Conduct& process, std::int64_t step) {
  return process.id + " at step " + std::to_string(step);
}

// Rising revisions have rising effective steps, each after the first step: so
// each has a step of its own, and none is overtaken before it has run.
std::string judge_order(const LaunchRecord& launch, const Commits& commits) {
  Step before = launch.start;
  for (const Verdict* commit : commits) {
    if (commit->effective <= before) {
      return "revision " + std::to_string(commit->revision.value) + " is effective at step " +
             std::to_string(commit->effective.value) + ", not after " + std::to_string(before.value);
    }
    before = commit->effective;
  }
  return "";
}

bool excused(const Conduct& process, Revision expected) {
  if (process.missed.count(expected.value) != 0) return true;
  if (process.closed >= expected) return false;
  return std::any_of(process.breaches.begin(), process.breaches.end(),
                     [&](const Conduct::Breach& breach) { return breach.revision <= expected; });
}

// The definition, said again: not by asking Schedule.
bool is_collected(const Verdict& commit, std::int64_t step) {
  const Plan& plan = *commit.plan;
  if (!plan.on) return false;
  const std::int64_t first = std::max(commit.effective.value, plan.at.value);
  std::int64_t times = plan.collect_times;
  if (plan.continues) {
    const std::int64_t old = plan.continues->first().value;
    times = plan.continues->times();
    for (std::int64_t t = old; t < first && times > 0; t += plan.continues->interval()) times -= 1;
  }
  return step >= first && (step - first) % plan.step_interval == 0 &&
         (step - first) / plan.step_interval < times;
}

std::string judge_steps(const Commits& commits, const Conduct& process) {
  std::size_t newest = 0;  // commits[newest - 1] is expected
  std::size_t collected = 0;
  for (std::size_t i = 0; i < process.ran.size(); ++i) {
    const std::int64_t step = process.start.value + static_cast<std::int64_t>(i);
    while (newest < commits.size() && commits[newest]->effective.value <= step &&
           (!process.bound || commits[newest]->revision <= *process.bound)) {
      ++newest;
    }
    const Revision expected = newest == 0 ? Revision{} : commits[newest - 1]->revision;
    const bool has = collected < process.collected.size() && process.collected[collected] == step;
    if (has) ++collected;
    if (process.ran[i] != expected.value) {
      if (process.ran[i] < expected.value && excused(process, expected)) continue;
      return at_step(process, step) + " ran revision " + std::to_string(process.ran[i]) + ", not " +
             std::to_string(expected.value);
    }
    const bool should = newest != 0 && is_collected(*commits[newest - 1], step);
    if (has != should) return at_step(process, step) + (has ? " collected" : " did not collect");
  }
  return collected == process.collected.size() ? "" : process.id + " collected a step it did not run";
}

std::string judge_switches(const LaunchRecord& launch, const Conduct& process) {
  for (const auto& [revision, step] : process.applied) {
    const auto verdict = launch.verdicts.find(revision.value);
    if (verdict == launch.verdicts.end() || !verdict->second.commit())
      return at_step(process, step.value) + " put in force what was never committed";
    if (verdict->second.effective != step)
      return at_step(process, step.value) + " put in force revision " + std::to_string(revision.value) +
             ", effective at step " + std::to_string(verdict->second.effective.value);
  }
  return "";
}

// Who misses has broken a promise, and was allowed to.
std::string judge_missed(const Conduct& process) {
  for (const std::uint64_t missed : process.missed) {
    const bool reason = std::any_of(process.breaches.begin(), process.breaches.end(),
                                    [&](const Conduct::Breach& one) { return one.revision.value <= missed; });
    if (!reason) return process.id + " missed revision " + std::to_string(missed) + " without need";
  }
  return "";
}

}  // namespace

std::string judge(const LaunchRecord& launch) {
  Commits commits;
  for (const auto& [revision, verdict] : launch.verdicts) {
    if (verdict.commit()) commits.push_back(&verdict);
  }
  if (auto wrong = judge_order(launch, commits); !wrong.empty()) return launch.epoch + ": " + wrong;
  for (const Conduct* process : launch.processes) {
    std::string wrong = judge_steps(commits, *process);
    if (wrong.empty()) wrong = judge_switches(launch, *process);
    if (wrong.empty()) wrong = judge_missed(*process);
    if (!wrong.empty()) return launch.epoch + ": " + wrong;
  }
  return "";
}

}  // namespace gradmon
