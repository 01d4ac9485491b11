// SPDX-License-Identifier: Apache-2.0
#include "control/alerts/replica_message.h"

#include <limits>

#include "control/debian_version.h"
#include "control/vocabulary.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

ReplicaDigests digests() { return {5, 2, {{Revision{1}, 3, 3, std::string(kReplicaDigestBytes, 'd')}}}; }
ReplicaRequest request() { return {Revision{1}, 3, 3, 63}; }
ReplicaValues values() { return {request(), 5, 1e-6, {{0, "fc1", {{3, 1.5}}}}}; }

TEST_CASE("messages as gradmon sends them are valid") {
  CHECK(is_valid(digests()));
  CHECK(is_valid(request()));
  CHECK(is_valid(values()));
  ReplicaValues forgotten = values();
  forgotten.rows.clear();
  CHECK(is_valid(forgotten));
}

TEST_CASE("digests out of range are invalid") {
  const auto invalid = [](auto change) {
    ReplicaDigests message = digests();
    change(message);
    return !is_valid(message);
  };
  CHECK(invalid([](auto& m) { m.group_size = 1; }));
  CHECK(invalid([](auto& m) { m.group_size = -2; }));
  CHECK(invalid([](auto& m) { m.digests.resize(kMostReplicaDigests + 1, m.digests[0]); }));
  CHECK(invalid([](auto& m) { m.digests[0].kind = kRecordKinds; }));
  CHECK(invalid([](auto& m) { m.digests[0].kind = -1; }));
  CHECK(invalid([](auto& m) { m.digests[0].step = -1; }));
  CHECK(invalid([](auto& m) { m.digests[0].buckets.pop_back(); }));
  CHECK(invalid([](auto& m) { m.digests[0].buckets += 'd'; }));
}

TEST_CASE("requests and values out of range are invalid") {
  const auto invalid = [](auto change) {
    ReplicaValues message = values();
    change(message);
    return !is_valid(message);
  };
  CHECK(invalid([](auto& m) { m.request.bucket = kReplicaBuckets; }));
  CHECK(invalid([](auto& m) { m.request.bucket = -1; }));
  CHECK(invalid([](auto& m) { m.request.kind = kRecordKinds; }));
  CHECK(invalid([](auto& m) { m.request.step = -1; }));
  CHECK(invalid([](auto& m) { m.threshold = 0; }));
  CHECK(invalid([](auto& m) { m.threshold = std::numeric_limits<double>::quiet_NaN(); }));
  CHECK(invalid([](auto& m) { m.rows.resize(kMostReplicaRows + 1, m.rows[0]); }));
  CHECK(invalid([](auto& m) { m.rows[0].name.assign(kMostReplicaName + 1, 'n'); }));
  CHECK(invalid([](auto& m) { m.rows[0].values[0].op = kOps; }));
  CHECK(invalid([](auto& m) { m.rows[0].values[0].op = -1; }));
  CHECK(invalid([](auto& m) { m.rows[0].values.resize(kOps + 1); }));
}

}  // namespace
}  // namespace gradmon
