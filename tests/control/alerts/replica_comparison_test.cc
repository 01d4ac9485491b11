// SPDX-License-Identifier: Apache-2.0
// The lead hub's comparison over scripted ranks: each holds values, sends digests and answers requests.
#include "control/alerts/replica_comparison.h"

#include <cmath>
#include <limits>

#include "control/alerts/replicas.h"
#include "control/vocabulary.h"
#include "tests/support/catch.h"

namespace gradmon {
namespace {

using Time = ReplicaComparison::Time;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

// The values of a rank in a step: the norm of each parameter.
using Norms = std::map<std::string, double>;

ReplicaRows rows_of(const Norms& norms, std::int64_t step, Kind kind = Kind::grad_reduced) {
  ReplicaTargets targets;
  ReplicaRows rows{Revision{1}, step, kind, bit_of(Op::norm), nullptr, {}};
  for (const auto& [name, norm] : norms) {
    targets.emplace_back(0, name);
    rows.values.push_back(norm);
  }
  rows.targets = std::make_shared<const ReplicaTargets>(std::move(targets));
  return rows;
}

struct Job {
  ReplicaComparison comparison{4};
  std::int64_t group_size = 4;
  double threshold = 1e-6;
  std::map<int, std::vector<ReplicaRows>> held;  // by rank
  std::vector<std::pair<Rank, ReplicaRequest>> requests;
  std::vector<std::pair<Rank, AlertReport>> reports;
  Time now{1'000};

  void take(ReplicaComparison::Actions actions) {
    for (auto& one : actions.requests) requests.push_back(one);
    for (auto& one : actions.alerts) reports.push_back(one);
  }
  void tell(int rank, const ReplicaRows& rows) {
    held[rank].push_back(rows);
    take(comparison.on_digests(Rank{rank}, {77, group_size, {fold_into_digest(rows)}}, now));
  }
  ReplicaValues answer_of(int rank, const ReplicaRequest& request) {
    ReplicaValues answer{request, 77, threshold, {}};
    for (const ReplicaRows& rows : held[rank]) {
      if (rows.step == request.step && static_cast<std::int64_t>(rows.kind) == request.kind)
        answer.rows = rows_in_bucket(rows, static_cast<std::size_t>(request.bucket));
    }
    return answer;
  }
  // Each rank in turn has this norm of "a".
  void tell_all(std::int64_t step, const std::vector<double>& norms) {
    for (std::size_t rank = 0; rank < norms.size(); ++rank)
      tell(static_cast<int>(rank), rows_of({{"a", norms[rank]}}, step));
  }
  void answer_all() {
    for (const auto& [rank, request] : std::exchange(requests, {}))
      take(comparison.on_values(rank, answer_of(rank.value, request)));
  }
  void wait(Time span) { take(comparison.tick(now += span)); }
  std::vector<Alert> alerts() const {
    std::vector<Alert> all;
    for (const auto& [rank, report] : reports) {
      for (const Alert& alert : report.alerts) {
        CHECK(alert.rank == rank);
        all.push_back(alert);
      }
    }
    return all;
  }
};

TEST_CASE("the relative difference counts equal NaN as equal, and a NaN beside a number as infinite") {
  CHECK(replica_difference(2, 2) == 0);
  CHECK(replica_difference(0.0, -0.0) == 0);
  CHECK(replica_difference(kNan, kNan) == 0);
  CHECK(replica_difference(kInf, kInf) == 0);
  CHECK(replica_difference(kNan, 1) == kInf);
  CHECK(replica_difference(1, kNan) == kInf);
  CHECK(replica_difference(kInf, -kInf) == kInf);
  CHECK(replica_difference(kInf, 1) == kInf);
  CHECK(replica_difference(1, 0) == 1);
  CHECK(std::fabs(replica_difference(-4, -3) - 0.25) < 1e-15);
  CHECK(replica_difference(1, -1) == 2);
  CHECK(replica_difference(1e308, -1e308) == 2);
}

TEST_CASE("ranks that agree are asked for nothing and raise nothing") {
  Job job;
  for (int step = 0; step < 50; ++step) {
    for (int rank = 0; rank < 4; ++rank) job.tell(rank, rows_of({{"a", 1.5}, {"b", kNan}}, step));
  }
  job.wait(Time{10'000});
  CHECK(job.requests.empty());
  CHECK(job.reports.empty());
  CHECK(job.comparison.counts().compared == 50);
  CHECK(job.comparison.counts().incomplete == 0);
}

TEST_CASE("the rank that differs from the majority raises the alert") {
  Job job;
  for (const int rank : {3, 2, 0}) job.tell(rank, rows_of({{"a", 1}, {"b", 2}}, 5));
  CHECK(job.requests.empty());
  job.tell(1, rows_of({{"a", 1}, {"b", 2.5}}, 5));
  REQUIRE(job.requests.size() == 2);  // one of the majority, and the other one
  job.answer_all();
  const auto alerts = job.alerts();
  REQUIRE(alerts.size() == 1);
  CHECK(alerts[0].rank == Rank{1});
  CHECK(alerts[0].step == 5);
  CHECK(alerts[0].rule == "AnomalyRankDivergence");
  CHECK(alerts[0].tag_name == "0:b/rank1/post_grad");
  CHECK(alerts[0].op == "norm");
  CHECK(alerts[0].value == 2.5);
  CHECK(alerts[0].history_mean == 2);
  CHECK(alerts[0].message ==
        "Rule AnomalyRankDivergence reports anomaly signal in ('0:b/rank1/post_grad', 'norm') at step 5, "
        "rank 1 has 2.5, ranks 0, 2, 3 have 2, relative difference 0.2.");
}

TEST_CASE("the part without the majority, or else without the lowest rank, raises the alert") {
  struct Case {
    std::string name;
    std::vector<double> norms;  // by rank
    int raises;                 // -1: none
    std::string message;        // its end
  };
  const std::vector<Case> cases{
      {"a NaN with a sign",
       {1, -kNan, 1, 1},
       1,
       "rank 1 has nan, ranks 0, 2, 3 have 1, relative difference inf."},
      {"a NaN", {1, 1, kNan, 1}, 2, "rank 2 has nan, ranks 0, 1, 3 have 1, relative difference inf."},
      {"a NaN on all ranks", {kNan, kNan, kNan, kNan}, -1, ""},
      {"two equally large parts", {1, 1, 3, 3}, 2, ""},
      {"a difference within the threshold", {1, 1, 1 + 9e-7, 1}, -1, ""},
      {"a difference beyond the threshold", {1, 1, 1 + 2e-6, 1}, 2, ""}};
  for (const Case& one : cases) {
    INFO(one.name);
    Job job;
    job.tell_all(5, one.norms);
    job.answer_all();
    REQUIRE(job.alerts().size() == (one.raises < 0 ? 0U : 1U));
    if (one.raises < 0) continue;
    CHECK(job.alerts()[0].rank == Rank{one.raises});
    CHECK(job.alerts()[0].message.find(one.message) != std::string::npos);
  }
}

TEST_CASE("a row that only some ranks have is not compared") {
  Job job;
  for (int rank = 0; rank < 4; ++rank)
    job.tell(rank, rows_of(rank == 2 ? Norms{{"a", 1}} : Norms{{"a", 1}, {"b", 2}}, 1));
  job.answer_all();
  CHECK(job.reports.empty());
}

TEST_CASE("a lasting divergence is reported once, and again after the ranks have agreed") {
  Job job;
  const auto train = [&](int step, double odd) {
    job.tell_all(step, {1, 1, 1, odd});
    job.answer_all();
    return job.alerts().size();
  };
  CHECK(train(1, 2) == 1);
  for (int step = 2; step < 20; ++step) CHECK(train(step, 2 + step) == 1);
  CHECK(train(20, 1) == 1);
  CHECK(train(21, 2) == 2);
  CHECK(train(22, 1 + 1e-9) == 2);  // within the threshold: they agree
  CHECK(train(23, 2) == 3);
}

TEST_CASE("the ranks that are there are compared when a rank stays away") {
  Job job;
  for (const int rank : {0, 1, 3}) job.tell(rank, rows_of({{"a", rank == 3 ? 2.0 : 1.0}}, 1));
  job.wait(ReplicaComparison::kWaitForRanks - Time{1});
  CHECK(job.requests.empty());
  job.wait(Time{1});
  CHECK(job.requests.size() == 2);
  job.answer_all();
  CHECK(job.alerts().size() == 1);
  CHECK(job.comparison.counts().incomplete == 1);
  job.tell(2, rows_of({{"a", 5}}, 1));  // too late
  job.answer_all();
  CHECK(job.alerts().size() == 1);
}

TEST_CASE("a rank that is alone is compared with nothing") {
  Job job;
  job.tell(0, rows_of({{"a", 1}}, 1));
  job.tell(0, rows_of({{"a", 2}}, 1));  // a repeated digest does not make two ranks
  job.wait(ReplicaComparison::kWaitForRanks);
  CHECK(job.requests.empty());
  CHECK(job.comparison.counts().compared == 0);
  CHECK(job.comparison.counts().incomplete == 1);
}

TEST_CASE("values that do not arrive are counted, and those that do are compared") {
  Job job;
  for (int rank = 0; rank < 4; ++rank) job.tell(rank, rows_of({{"a", 1.0 + (rank > 1 ? rank : 0)}}, 1));
  REQUIRE(job.requests.size() == 3);
  std::size_t answered = 0;
  for (const auto& [rank, request] : std::exchange(job.requests, {})) {
    if (rank.value == 2) continue;
    job.take(job.comparison.on_values(rank, job.answer_of(rank.value, request)));
    ++answered;
  }
  CHECK(answered == 2);
  CHECK(job.alerts().empty());
  job.wait(ReplicaComparison::kWaitForValues);
  REQUIRE(job.alerts().size() == 1);
  CHECK(job.alerts()[0].rank == Rank{3});
  for (int rank = 0; rank < 4; ++rank) job.tell(rank, rows_of({{"z", 1.0 + (rank == 1)}}, 2));
  job.held.clear();  // the ranks have forgotten the step
  job.answer_all();
  CHECK(job.alerts().size() == 1);
  CHECK(job.comparison.counts().unresolved == 1);
}

TEST_CASE("kinds, steps and revisions are compared apart from each other") {
  Job job;
  for (int rank = 0; rank < 4; ++rank) {
    const double own = 1.0 + rank;
    job.tell(rank, rows_of({{"a", own}}, rank, Kind::grad_reduced));  // each another step
    ReplicaRows rows = rows_of({{"a", own}}, 9, Kind::param_updated);
    rows.revision = Revision{static_cast<std::uint64_t>(rank) + 1};
    job.tell(rank, rows);
  }
  job.wait(ReplicaComparison::kWaitForRanks);
  CHECK(job.requests.empty());
  CHECK(job.comparison.counts().incomplete == 8);
}

TEST_CASE("groups are compared apart from each other") {
  ReplicaComparison comparison(4);
  for (int rank = 0; rank < 4; ++rank) {
    const ReplicaDigests digests{
        static_cast<std::uint64_t>(rank % 2), 2, {fold_into_digest(rows_of({{"a", 1.0 + rank % 2}}, 1))}};
    CHECK(comparison.on_digests(Rank{rank}, digests, Time{0}).requests.empty());
  }
  CHECK(comparison.counts().compared == 2);
}

TEST_CASE("a rank that changes its group leaves the other one, whose steps go with its last rank") {
  ReplicaComparison comparison(4);
  for (std::uint64_t group = 0; group < 1'000; ++group) {
    const ReplicaDigests digests{
        group, 2, {fold_into_digest(rows_of({{"a", 1}}, static_cast<std::int64_t>(group)))}};
    CHECK(comparison.on_digests(Rank{0}, digests, Time{0}).requests.empty());
  }
  CHECK(comparison.steps_kept() == 1);
}

TEST_CASE("the summary counts what was compared and names the ranks that were not, and why") {
  using Lines = std::vector<std::string>;
  ReplicaComparison comparison(5);
  const auto tell = [&](int rank, std::uint64_t group, std::int64_t step, Time now) {
    comparison.on_digests(Rank{rank}, {group, 2, {fold_into_digest(rows_of({{"a", 1}}, step))}}, now);
  };
  CHECK(comparison.summary().not_compared == Lines{"ranks 0, 1, 2, 3, 4: no values of replicas so far"});
  for (const int rank : {0, 1, 2, 3}) tell(rank, rank < 2 ? 7 : 8, 1, Time{0});
  CHECK(comparison.summary().groups == 2);
  CHECK(comparison.summary().ranks == 4);
  CHECK(comparison.summary().comparisons == 2);
  CHECK(comparison.summary().last_step == 1);
  CHECK(comparison.summary().not_compared == Lines{"rank 4: no values of replicas so far"});
  tell(4, 9, 2, Time{0});
  tell(0, 7, 2, Time{0});
  tell(1, 7, 2, Time{0});
  tell(3, 8, 2, Time{0});
  comparison.tick(ReplicaComparison::kWaitForRanks);
  CHECK(comparison.summary().groups == 2);
  CHECK(comparison.summary().comparisons == 3);
  CHECK(comparison.summary().incomplete == 2);
  CHECK(comparison.summary().last_step == 2);
  CHECK(comparison.summary().not_compared ==
        Lines{"rank 2: no values of replicas at step 2",
              "rank 3: no other of the 2 ranks with the same values has sent them at step 2",
              "rank 4: no other of the 2 ranks with the same values has sent them at step 2"});
  tell(2, 8, 3, Time{20'000});
  tell(3, 8, 3, Time{20'000});
  CHECK(comparison.summary().not_compared.size() == 1);
  CHECK(comparison.summary().last_step == 3);
}

TEST_CASE("memory stays bounded, whatever the ranks send") {
  Job job;
  for (int step = 0; step < 5'000; ++step) {
    for (const int rank : {0, 1}) job.tell(rank, rows_of({{"a", 1.0 * rank}}, step));
    job.held.clear();
  }
  CHECK(job.comparison.steps_kept() <= 2 * ReplicaComparison::kMostSteps);
  CHECK(job.requests.size() <= 2 * 5'000);
  job.tell(2, rows_of({{"a", 1}}, 3));  // forgotten long ago
  CHECK(job.comparison.steps_kept() <= 2 * ReplicaComparison::kMostSteps);
}

TEST_CASE("a model that differs everywhere is asked for a few buckets, and reported within the bounds") {
  Job job;
  Norms norms;
  for (int i = 0; i < 10'000; ++i) norms["layer" + std::to_string(i)] = i + 1;
  Norms others = norms;
  for (auto& [name, norm] : others) norm *= 2;
  for (const int rank : {0, 1, 2}) job.tell(rank, rows_of(norms, 1));
  job.tell(3, rows_of(others, 1));
  CHECK(job.requests.size() == 2 * ReplicaComparison::kMostBuckets);
  job.answer_all();
  CHECK(job.alerts().size() == ReplicaComparison::kMostAlerts);
  std::uint64_t left_out = 0;
  for (const auto& [rank, report] : job.reports) left_out += report.left_out;
  CHECK(left_out > 400);
  // The next step looks at other buckets first.
  for (const int rank : {0, 1, 2}) job.tell(rank, rows_of(norms, 2));
  job.tell(3, rows_of(others, 2));
  job.answer_all();
  CHECK(job.alerts().size() == 2 * ReplicaComparison::kMostAlerts);
}

TEST_CASE("values that nobody asked for and groups that are too large have no effect") {
  Job job;
  const ReplicaRequest request{Revision{1}, 1, 3, 0};
  job.take(job.comparison.on_values(Rank{0}, {request, 77, 1e-6, {}}));
  job.tell(0, rows_of({{"a", 1}}, 1));
  job.take(job.comparison.on_values(Rank{0}, {request, 77, 1e-6, {}}));
  job.take(job.comparison.on_values(Rank{0}, {request, 78, 1e-6, {}}));
  job.take(job.comparison.on_values(Rank{9}, {request, 77, 1e-6, {}}));
  job.take(job.comparison.on_digests(Rank{1}, {79, 5, {fold_into_digest(rows_of({{"a", 2}}, 1))}}, job.now));
  job.take(job.comparison.on_digests(Rank{1}, {77, 3, {fold_into_digest(rows_of({{"a", 2}}, 1))}}, job.now));
  job.wait(Time{10'000});
  CHECK(job.requests.empty());
  CHECK(job.reports.empty());
}

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
