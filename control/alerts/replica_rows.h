// SPDX-License-Identifier: Apache-2.0
// The values of a rank that other ranks should hold as well. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "control/alerts/replica_message.h"
#include "control/step.h"
#include "control/vocabulary.h"

namespace gradmon {

// Ranks that should hold the same values. Constant over a job.
struct ReplicaGroup {
  std::uint64_t id = 0;   // the same on all of its ranks
  std::int64_t size = 0;  // ranks
};
// `ranks`: each rank once, in any order.
ReplicaGroup replica_group_of(std::vector<int> ranks);

// A parameter that has rows.
struct ReplicaTarget {
  int vpp_stage = 0;
  std::string name;        // at most kMostReplicaName bytes
  std::uint64_t hash = 0;  // of both; chooses the bucket

  ReplicaTarget(int stage, std::string_view full_name);
  std::size_t bucket() const { return hash % kReplicaBuckets; }
};
using ReplicaTargets = std::vector<ReplicaTarget>;

// The rows of one kind of one step.
struct ReplicaRows {
  Revision revision;
  std::int64_t step = 0;
  Kind kind = Kind::other;
  ValueMask ops = 0;                              // bit_of the statistics that each row has
  std::shared_ptr<const ReplicaTargets> targets;  // of each row; shared between steps
  std::vector<double> values;                     // of each row, by rising Op
};

// The statistics in `mask`, in their order.
std::vector<Op> ops_in(ValueMask mask);

// Treats NaN as equal to NaN, and 0 as equal to −0, for any bits.
ReplicaDigest digest_of(const ReplicaRows& rows);

// The rows of a bucket, at most kMostReplicaRows.
std::vector<ReplicaRow> rows_in_bucket(const ReplicaRows& rows, std::size_t bucket);

}  // namespace gradmon
