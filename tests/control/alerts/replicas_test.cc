// SPDX-License-Identifier: Apache-2.0
#include "control/alerts/replicas.h"

#include <limits>

#include "control/vocabulary.h"
#include "tests/support/catch.h"

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

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

ReplicaRows rows_of(const std::vector<std::string>& names, std::vector<double> values) {
  ReplicaTargets targets;
  for (const std::string& name : names) targets.emplace_back(0, name);
  return {Revision{3},
          7,
          Kind::param_updated,
          static_cast<ValueMask>(bit_of(Op::mean) | bit_of(Op::norm)),
          std::make_shared<const ReplicaTargets>(std::move(targets)),
          std::move(values)};
}

std::string bucket(const ReplicaDigest& digest, const std::string& name) {
  return digest.buckets.substr(8 * ReplicaTarget(0, name).bucket(), 8);
}

TEST_CASE("equal rows have equal digests, in whatever order they were read") {
  const ReplicaDigest one = fold_into_digest(rows_of({"a", "b"}, {1, 2, 3, 4}));
  CHECK(one.buckets.size() == kReplicaDigestBytes);
  CHECK(one.step == 7);
  CHECK(one.revision == Revision{3});
  CHECK(one.kind == static_cast<std::int64_t>(Kind::param_updated));
  CHECK(fold_into_digest(rows_of({"b", "a"}, {3, 4, 1, 2})).buckets == one.buckets);
}

TEST_CASE("a digest differs in the bucket of the target that differs, and there alone") {
  REQUIRE(ReplicaTarget(0, "a").bucket() != ReplicaTarget(0, "b").bucket());
  const ReplicaDigest one = fold_into_digest(rows_of({"a", "b"}, {1, 2, 3, 4}));
  for (const auto& values : {std::vector<double>{1, 2, 3, 4.0000000000000009},
                             std::vector<double>{1, 2, 4, 3}, std::vector<double>{1, 2, kNan, 4}}) {
    const ReplicaDigest other = fold_into_digest(rows_of({"a", "b"}, values));
    CHECK(bucket(other, "a") == bucket(one, "a"));
    CHECK(bucket(other, "b") != bucket(one, "b"));
  }
}

TEST_CASE("a digest does not tell one NaN from another, nor 0 from -0") {
  const ReplicaDigest one = fold_into_digest(rows_of({"a"}, {kNan, 0.0}));
  CHECK(fold_into_digest(rows_of({"a"}, {-kNan, -0.0})).buckets == one.buckets);
}

TEST_CASE("targets of different model chunks are different targets") {
  CHECK(ReplicaTarget(0, "a").hash != ReplicaTarget(1, "a").hash);
}

TEST_CASE("a bucket has the rows of its targets, bounded in number and in length") {
  std::vector<std::string> names;
  std::vector<double> values;
  for (int i = 0; i < 64 * 400; ++i) {
    names.push_back("p" + std::to_string(i));
    values.insert(values.end(), {1.0 * i, 2.0 * i});
  }
  names.emplace_back(10'000, 'x');
  values.insert(values.end(), {5, 6});
  const ReplicaRows rows = rows_of(names, values);
  for (std::size_t i = 0; i < kReplicaBuckets; ++i) {
    const auto found = rows_in_bucket(rows, i);
    CHECK(found.size() == kMostReplicaRows);
    CHECK(ReplicaTarget(0, found[0].name).bucket() == i);
    REQUIRE(found[0].values.size() == 2);
    CHECK(found[0].values[0].op == static_cast<std::int64_t>(Op::mean));
    CHECK(found[0].values[1].value == 2 * found[0].values[0].value);
  }
  const auto last = rows_of({std::string(10'000, 'x')}, {5, 6});
  CHECK(rows_in_bucket(last, (*last.targets)[0].bucket()).at(0).name.size() == kMostReplicaName);
}

TEST_CASE("the same ranks are the same group, in any order") {
  CHECK(replica_group_of({2, 0, 11}).id == replica_group_of({0, 11, 2}).id);
  CHECK(replica_group_of({0, 11, 2}).size == 3);
  CHECK(replica_group_of({0, 1}).id != replica_group_of({0, 2}).id);
  CHECK(replica_group_of({1, 11}).id != replica_group_of({11}).id);
}

}  // namespace
}  // namespace gradmon
