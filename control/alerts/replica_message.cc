// SPDX-License-Identifier: Apache-2.0
#include "control/alerts/replica_message.h"

#include <algorithm>

#include "control/vocabulary.h"

namespace gradmon {
namespace {

bool is_kind(std::int64_t kind) { return kind >= 0 && kind < static_cast<std::int64_t>(kRecordKinds); }

bool is_valid(const ReplicaDigest& digest) {
  return is_kind(digest.kind) && digest.step >= 0 && digest.buckets.size() == kReplicaDigestBytes;
}

bool is_valid(const ReplicaRow& row) {
  return row.name.size() <= kMostReplicaName && row.values.size() <= kOps &&
         std::all_of(row.values.begin(), row.values.end(), [](const ReplicaValue& value) {
           return value.op >= 0 && value.op < static_cast<std::int64_t>(kOps);
         });
}

template <typename Part>
bool all_valid(const std::vector<Part>& parts, std::size_t most) {
  return parts.size() <= most &&
         std::all_of(parts.begin(), parts.end(), [](const Part& part) { return is_valid(part); });
}

}  // namespace

bool is_valid(const ReplicaDigests& message) {
  return message.group_size >= 2 && all_valid(message.digests, kMostReplicaDigests);
}

bool is_valid(const ReplicaRequest& message) {
  return is_kind(message.kind) && message.step >= 0 && message.bucket >= 0 &&
         message.bucket < static_cast<std::int64_t>(kReplicaBuckets);
}

bool is_valid(const ReplicaValues& message) {
  return is_valid(message.request) && message.threshold > 0 && all_valid(message.rows, kMostReplicaRows);
}

}  // namespace gradmon
