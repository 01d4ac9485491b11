// SPDX-License-Identifier: Apache-2.0
// The messages of AnomalyRankDivergence, and the rows that they describe, as values. Ranks that should hold
// the same values send digests of them to the lead hub, and the values themselves on request.
// control/PROTOCOL.md describes the messages. Pure; any thread. A new field needs a number in
// control/wire/messages.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "control/step.h"
#include "control/vocabulary.h"

namespace gradmon {

inline constexpr std::size_t kReplicaBuckets = 64;
inline constexpr std::size_t kReplicaDigestBytes = 8 * kReplicaBuckets;
inline constexpr std::size_t kMostReplicaDigests = 48;  // of one message
inline constexpr std::size_t kMostReplicaRows = 256;    // of one message
inline constexpr std::size_t kMostReplicaName = 512;    // bytes

// The rows of one kind of one step, folded into a hash for each bucket of targets. Equal rows have equal
// digests in any reading order.
struct ReplicaDigest {
  Revision revision;
  std::int64_t step = 0;
  std::int64_t kind = 0;  // a Kind
  std::string buckets;    // kReplicaDigestBytes
};

// Member to lead hub.
struct ReplicaDigests {
  std::uint64_t group = 0;      // identifies the ranks that should hold the same values
  std::int64_t group_size = 0;  // the number of those ranks
  std::vector<ReplicaDigest> digests;
};

// Lead hub to member: asks for the values of a bucket.
struct ReplicaRequest {
  Revision revision;
  std::int64_t step = 0;
  std::int64_t kind = 0;
  std::int64_t bucket = 0;  // 0 … kReplicaBuckets − 1
};

struct ReplicaValue {
  std::int64_t op = 0;  // an Op
  double value = 0;
};

struct ReplicaRow {
  std::int64_t vpp_stage = 0;
  std::string name;  // of the parameter
  std::vector<ReplicaValue> values;
};

// Member to lead hub: the answer to a request. No rows: the member no longer keeps that step.
struct ReplicaValues {
  ReplicaRequest request;
  std::uint64_t group = 0;
  double threshold = 0;  // of the rule
  std::vector<ReplicaRow> rows;
};

// True if gradmon sends every kind, bucket, statistic, count and length in it. The input is untrusted.
bool is_valid(const ReplicaDigests& message);
bool is_valid(const ReplicaRequest& message);
bool is_valid(const ReplicaValues& message);

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
ReplicaDigest fold_into_digest(const ReplicaRows& rows);

// The rows of a bucket, at most kMostReplicaRows.
std::vector<ReplicaRow> rows_in_bucket(const ReplicaRows& rows, std::size_t bucket);

}  // namespace gradmon
