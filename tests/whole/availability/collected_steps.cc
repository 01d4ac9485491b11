// SPDX-License-Identifier: Apache-2.0
#include "tests/whole/availability/collected_steps.h"

#include <algorithm>
#include <map>
#include <set>

#include "tests/support/temporary_directory.h"

namespace gradmon {
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

}  // namespace gradmon
