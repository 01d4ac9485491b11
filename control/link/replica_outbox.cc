// SPDX-License-Identifier: Apache-2.0
#include "control/link/replica_outbox.h"

#include <algorithm>
#include <utility>

namespace gradmon {

ReplicaOutbox::ReplicaOutbox(std::shared_ptr<Mailbox> mailbox)
    : mailbox_(std::move(mailbox)), messages_(kMessages, Clock::now()), answers_(kAnswers, Clock::now()) {}

void ReplicaOutbox::put(ReplicaStep step) {
  std::vector<ReplicaDigest> digests;
  for (const ReplicaRows& rows : step.kinds) digests.push_back(digest_of(rows));
  {
    const std::lock_guard lock(mutex_);
    group_ = step.group;
    threshold_ = step.threshold;
    for (ReplicaRows& rows : step.kinds) keep(std::move(rows));
    for (ReplicaDigest& digest : digests) {
      if (waiting_.size() < kMostWaiting) {
        waiting_.push_back(std::move(digest));
      } else {
        ++dropped_;
      }
    }
  }
  mailbox_->wake();
}

void ReplicaOutbox::keep(ReplicaRows rows) {
  kept_values_ += rows.values.size();
  kept_.push_back(std::move(rows));
  while (kept_values_ > kMostKept && kept_.size() > 1) {
    kept_values_ -= kept_.front().values.size();
    kept_.pop_front();
  }
}

std::optional<ReplicaDigests> ReplicaOutbox::take(Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  if (waiting_.empty() || !messages_.try_take(now)) return std::nullopt;
  ReplicaDigests message{group_.id, group_.size, {}};
  while (!waiting_.empty() && message.digests.size() < kMostReplicaDigests) {
    message.digests.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  return message;
}

std::optional<ReplicaValues> ReplicaOutbox::answer(const ReplicaRequest& request, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  if (threshold_ <= 0 || !answers_.try_take(now)) return std::nullopt;
  ReplicaValues answer{request, group_.id, threshold_, {}};
  const auto kept = std::find_if(kept_.rbegin(), kept_.rend(), [&](const ReplicaRows& rows) {
    return rows.revision == request.revision && rows.step == request.step &&
           static_cast<std::int64_t>(rows.kind) == request.kind;
  });
  if (kept != kept_.rend()) answer.rows = rows_in_bucket(*kept, static_cast<std::size_t>(request.bucket));
  return answer;
}

std::uint64_t ReplicaOutbox::dropped() const {
  const std::lock_guard lock(mutex_);
  return dropped_;
}

}  // namespace gradmon
