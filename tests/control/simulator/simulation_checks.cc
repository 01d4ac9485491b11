// SPDX-License-Identifier: Apache-2.0
// What is checked of a simulated job as a whole: ends that are written back,
// and that all comes to rest once nothing goes wrong any more.
#include <algorithm>

#include "tests/control/simulator/simulation.h"

namespace gradmon {
namespace {

std::string named(int rank) { return "rank " + std::to_string(rank); }

}  // namespace

void Simulation::check_write_back(const Process& process, const CoordinatorActions& actions) {
  Launch& launch = launch_of(process);
  const Revision revision = actions.write_back->revision;
  const std::string what = "the write-back of revision " + std::to_string(revision.value);
  if (!launch.written_back.insert(revision.value).second) return fail(what + " comes twice");
  const auto verdict = launch.record.verdicts.find(revision.value);
  if (verdict == launch.record.verdicts.end() || !verdict->second.commit())
    return fail(what + " is of no commit");
  if (actions.write_back->file != *verdict->second.plan->file) return fail(what + " is of another file");
  const bool on = verdict->second.plan->on;
  for (const Process* one : launch.seats) {
    if (one == nullptr) return fail(what + " comes before all have joined");
    const bool finished = std::any_of(processes_.begin(), processes_.end(), [&](const Process& any) {
      return any.launch == process.launch && any.rank == one->rank &&
             (on ? any.finished >= revision
                 : !any.seen.applied.empty() && any.seen.applied.back().first >= revision);
    });
    if (one->left || one->leave_by || finished) continue;
    const bool said = std::any_of(actions.warnings.begin(), actions.warnings.end(), [&](const auto& line) {
      return line.find(" " + std::to_string(one->rank.value)) != std::string::npos &&
             line.find("did not report the end") != std::string::npos;
    });
    if (!said) return fail(what + " comes before " + one->seen.id + " has finished");
  }
}

std::string Simulation::changes_without_end(const Coordinator& coordinator) const {
  for (const std::string& change : launches_.back().changes) {
    const HistoryEntry* entry = coordinator.journal().find_request(change);
    if (entry == nullptr) return "change " + change + " was forgotten";
    if (!entry->final || entry->verdict.empty()) return "change " + change + " has no last word";
    const bool refused = entry->reason.find("rejected by") != std::string::npos ||
                         entry->reason.find("no target") != std::string::npos ||
                         entry->reason.find("superseded") != std::string::npos;
    if (entry->verdict == "abort" && !refused) return "change " + change + " was dropped: " + entry->reason;
  }
  return "";
}

std::string Simulation::why_not_settled() {
  const Launch& launch = launches_.back();
  Revision newest;
  for (const auto& [revision, verdict] : launch.record.verdicts) {
    if (verdict.commit()) newest = Revision{revision};
  }
  const Process* rank0 = launch.seats[0];
  const bool decided_by_nobody = rank0 != nullptr && !rank0->alive;
  bool incomplete = false;
  bool any = false;
  for (std::size_t rank = 0; rank < launch.seats.size(); ++rank) {
    const Process* process = launch.seats[rank];
    if (process == nullptr) return named(static_cast<int>(rank)) + " is not there yet";
    if (!process->alive && !process->left) incomplete = true;
    any = any || process->alive;
  }
  if (!any) return "";
  const bool stands = incomplete && script_.coupled != 0;  // in a collective with one that is dead
  for (const Process* process : launch.seats) {
    if (!process->alive) continue;
    if (process->waiting && !(process->asked && process->asked->wait_on_partition))
      return process->seen.id + " waits at step " + std::to_string(process->next.value);
    const auto& breaches = process->seen.breaches;
    if (!breaches.empty() && process->member->progress().closed < breaches.back().revision)
      return process->seen.id + " does not learn what became of revision " +
             std::to_string(breaches.back().revision.value);
    if (decided_by_nobody || stands) continue;
    if (process->revision != newest.value)
      return process->seen.id + " runs revision " + std::to_string(process->revision) + ", not " +
             std::to_string(newest.value);
  }
  if (decided_by_nobody || incomplete) return "";
  if (rank0->coordinator->busy()) return "a change is pending";
  if (std::string open = changes_without_end(*rank0->coordinator); !open.empty()) return open;
  if (launch.written_back.count(newest.value) == 0) return "the end is not written back";
  return "";
}

}  // namespace gradmon
