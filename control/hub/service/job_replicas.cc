// SPDX-License-Identifier: Apache-2.0
// JobService: AnomalyRankDivergence over the ranks (control/alerts/replica_comparison.h).
#include <utility>

#include "control/hub/service/job_service.h"

namespace gradmon {

void JobService::on_replicas(const Envelope& envelope) {
  if (!is_from_rank(envelope)) return;
  if (const auto* digests = std::get_if<ReplicaDigests>(&envelope.message)) {
    perform(replicas_.on_digests(envelope.rank, *digests, clock_));
  } else if (const auto* values = std::get_if<ReplicaValues>(&envelope.message)) {
    perform(replicas_.on_values(envelope.rank, *values));
  }
}

// The differing rank raises the alert, so that it passes through that rank's other outputs too.
void JobService::perform(ReplicaComparison::Actions actions) {
  for (auto& [rank, request] : actions.requests) send_to(rank, request);
  for (auto& [rank, report] : actions.alerts) {
    unraised_.tell(rank, coordinator_.membership().of(rank.value).hello.process_id, report);
    send_to(rank, std::move(report));
  }
  raise_orphans();
}

// Raises the alerts of ranks that ended before they could report them.
void JobService::raise_orphans() {
  const auto has_ended = [this](Rank rank, const std::string& process_id) {
    const Membership::Member& member = coordinator_.membership().of(rank.value);
    return !member.takes_part() || member.hello.process_id != process_id;
  };
  for (UnraisedAlerts::Told& orphan : unraised_.take_orphans(has_ended))
    raise(orphan.rank, orphan.process_id, {{std::move(orphan.alert)}, 0});
}

void JobService::send_to(Rank rank, Message message) {
  const std::uint64_t incarnation = coordinator_.membership().of(rank.value).incarnation;
  dependencies_.send({{{rank.value, incarnation}}, std::move(message)});
}

std::vector<std::string> JobService::replica_warnings() const {
  const ReplicaComparison::Counts& counts = replicas_.counts();
  std::vector<std::string> warnings;
  if (counts.incomplete > 0)
    warnings.push_back("AnomalyRankDivergence: " + std::to_string(counts.incomplete) +
                       " comparisons without the values of some ranks, " + std::to_string(counts.compared) +
                       " comparisons made");
  if (counts.unresolved > 0)
    warnings.push_back("AnomalyRankDivergence: values that may differ between ranks did not arrive " +
                       std::to_string(counts.unresolved) + " times");
  return warnings;
}

void JobService::describe_replicas(Status& status) const {
  ReplicasCompared summary = replicas_.summary();
  if (summary.ranks > 0 || (alerting_.divergence && status.state == "on"))
    status.replicas_compared = std::move(summary);
}

}  // namespace gradmon
