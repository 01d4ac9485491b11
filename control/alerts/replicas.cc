// SPDX-License-Identifier: Apache-2.0
#include "control/alerts/replicas.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "control/text/hash.h"
#include "control/text/utf8.h"

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

constexpr std::uint64_t kNanBits = 0x7ff8000000000000;

std::uint64_t bit_pattern(double value) {
  if (std::isnan(value)) return kNanBits;
  value += 0.0;  // −0 becomes 0
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

void append_little_endian(std::uint64_t value, std::string& to) {
  for (unsigned shift = 0; shift < 64; shift += 8) to.push_back(static_cast<char>(value >> shift & 0xffU));
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

ReplicaGroup replica_group_of(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  std::string text;
  for (const int rank : ranks) text += std::to_string(rank) + " ";
  return {mixed(fnv_hash(text)), static_cast<std::int64_t>(ranks.size())};
}

ReplicaTarget::ReplicaTarget(int stage, std::string_view full_name)
    : vpp_stage(stage),
      name(utf8_prefix(full_name, kMostReplicaName)),
      hash(mixed(fnv_hash(std::to_string(stage) + ":" + std::string(full_name)))) {}

std::vector<Op> ops_in(ValueMask mask) {
  std::vector<Op> ops;
  for (std::size_t i = 0; i < kOps; ++i) {
    if ((mask & bit_of(static_cast<Op>(i))) != 0) ops.push_back(static_cast<Op>(i));
  }
  return ops;
}

ReplicaDigest fold_into_digest(const ReplicaRows& rows) {
  std::array<std::uint64_t, kReplicaBuckets> sums{};
  const std::size_t width = ops_in(rows.ops).size();
  const double* value = rows.values.data();
  for (const ReplicaTarget& target : *rows.targets) {
    std::uint64_t hash = target.hash;
    for (std::size_t i = 0; i < width; ++i) hash = mixed(hash + bit_pattern(*value++)) + i;
    sums[target.bucket()] += hash;  // a sum does not depend on the order of the rows
  }
  ReplicaDigest digest{rows.revision, rows.step, static_cast<std::int64_t>(rows.kind), {}};
  digest.buckets.reserve(kReplicaDigestBytes);
  for (const std::uint64_t sum : sums) append_little_endian(sum, digest.buckets);
  return digest;
}

std::vector<ReplicaRow> rows_in_bucket(const ReplicaRows& rows, std::size_t bucket) {
  const std::vector<Op> ops = ops_in(rows.ops);
  std::vector<ReplicaRow> found;
  for (std::size_t i = 0; i < rows.targets->size() && found.size() < kMostReplicaRows; ++i) {
    const ReplicaTarget& target = (*rows.targets)[i];
    if (target.bucket() != bucket) continue;
    ReplicaRow row{target.vpp_stage, target.name, {}};
    for (std::size_t k = 0; k < ops.size(); ++k)
      row.values.push_back({static_cast<std::int64_t>(ops[k]), rows.values[i * ops.size() + k]});
    found.push_back(std::move(row));
  }
  return found;
}

}  // namespace gradmon
