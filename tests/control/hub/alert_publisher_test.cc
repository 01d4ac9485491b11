// SPDX-License-Identifier: Apache-2.0
// A whole hub with its publisher, and subscribers of its alerts, honest, stuck and hostile.
#include "control/hub/alert_publisher.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <zmq.hpp>

#include "control/alerts/alert_report.h"
#include "control/alerts/replicas.h"
#include "control/host/child_process.h"
#include "control/host/history_file.h"
#include "control/hub/transport/bus.h"
#include "tests/control/hub/hub_process.h"
#include "tests/support/catch.h"

namespace gradmon {
namespace {

using std::chrono::milliseconds;

struct Published {
  std::string rule;
  std::string text;
};

std::int64_t step_of(const Published& alert) { return nlohmann::json::parse(alert.text)["step"]; }

class Subscriber {
 public:
  Subscriber(const JobPlace& place, const std::string& rule) {
    socket_.set(zmq::sockopt::linger, 0);
    socket_.set(zmq::sockopt::subscribe, rule);
    socket_.connect("ipc://" + place.directory.alerts().string());
  }
  std::optional<Published> next(milliseconds at_most) {
    socket_.set(zmq::sockopt::rcvtimeo, static_cast<int>(at_most.count()));
    zmq::message_t rule, text;
    if (!socket_.recv(rule) || !rule.more() || !socket_.recv(text) || text.more()) return {};
    return Published{rule.to_string(), text.to_string()};
  }

 private:
  zmq::context_t context_{1};
  zmq::socket_t socket_{context_, zmq::socket_type::sub};
};

constexpr char kWithRules[] = R"({"alert": {"rules": [{"rule_name": "AnomalyNan"}]}})";

// A job with one rank, and a client of its hub.
struct PublishingJob {
  const JobPlace place;
  const HubProcess hub{place, GRADMONCTL};
  HubPeer rank{place}, client{place};
  std::int64_t raised = 0;  // the step of the newest alerts, which no others have

  explicit PublishingJob(const std::string& config = kWithRules) {
    Introduction rank_0 = introduction_of(place, 0, 1);
    rank_0.lead_job->static_text = config;
    rank.join(place, rank_0);
  }

  void raise(const std::string& rule, std::size_t alerts = 1) {
    AlertReport report;
    report.alerts.resize(alerts);
    ++raised;
    for (Alert& alert : report.alerts) {
      alert.rule = rule;
      alert.step = raised;
      alert.value = std::nan("");
      alert.message = std::string(900, 'm') + "\"\n\xff";
    }
    rank.say(0, report);
  }
  // A subscription takes a moment: raises alerts until one arrives. More of them may follow it.
  bool reaches(Subscriber& subscriber, const std::string& rule) {
    return eventually([&] {
      raise(rule);
      return subscriber.next(milliseconds{20}).has_value();
    });
  }
  // When the publisher's socket was bound, in ns; 0: there is none.
  std::int64_t bound_at() const {
    struct stat found {};
    if (::lstat(place.directory.alerts().c_str(), &found) != 0) return 0;
    return found.st_ctim.tv_sec * 1'000'000'000 + found.st_ctim.tv_nsec;
  }
};

TEST_CASE("a subscriber gets the alerts of the rule that it asks for, as gradmonctl prints them") {
  PublishingJob job;
  REQUIRE(eventually([&] {
    return job.client.status().alerts_endpoint == "ipc://" + job.place.directory.alerts().string();
  }));
  Subscriber spikes(job.place, "AnomalySpike");
  Subscriber all(job.place, "");
  REQUIRE(job.reaches(spikes, "AnomalySpike"));
  REQUIRE(job.reaches(all, "AnomalySpike"));
  const std::int64_t before = job.raised;
  const auto next_after = [&](Subscriber& subscriber) {
    auto found = subscriber.next(milliseconds{10'000});
    while (found && step_of(*found) <= before) found = subscriber.next(milliseconds{10'000});
    return found;
  };
  job.raise("AnomalyNan");
  job.raise("AnomalySpike");
  const auto other = next_after(all);
  REQUIRE(other);
  CHECK(other->rule == "AnomalyNan");
  const auto spike = next_after(spikes);
  REQUIRE(spike);
  CHECK(spike->rule == "AnomalySpike");
  const Alert listed = job.client.ask(CommandVerb::alerts).alerts.back();
  CHECK(spike->text ==
        to_json(listed).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  CHECK(nlohmann::json::parse(spike->text)["value"] == "nan");
}

TEST_CASE("a subscriber that reads nothing costs another one no alert") {
  PublishingJob job;
  REQUIRE(eventually([&] { return job.bound_at() != 0; }));
  REQUIRE(job.client.status().warnings.empty());
  const Subscriber stuck(job.place, "");
  Subscriber reading(job.place, "");
  REQUIRE(job.reaches(reading, "AnomalyNan"));
  constexpr std::size_t at_once = 16;
  constexpr std::size_t alerts = 3 * kMostUnread;
  for (std::size_t sent = 0; sent < alerts; sent += at_once) {
    job.raise("AnomalyNan", at_once);
    for (std::size_t i = 0; i < at_once; ++i) REQUIRE(reading.next(milliseconds{10'000}));
  }
  CHECK(job.client.status().warnings.empty());
}

TEST_CASE("a subscriber that asks for topics without end harms neither the hub nor its alerts") {
  PublishingJob job;
  REQUIRE(eventually([&] { return job.bound_at() != 0; }));
  const std::int64_t before = job.bound_at();
  zmq::context_t context(1);
  zmq::socket_t greedy(context, zmq::socket_type::sub);
  greedy.set(zmq::sockopt::linger, 0);
  greedy.set(zmq::sockopt::sndhwm, 0);
  greedy.connect("ipc://" + job.place.directory.alerts().string());
  for (int i = 0; i < 20'000; ++i) {
    std::string topic = std::to_string(i);
    topic.resize(400, 't');
    greedy.set(zmq::sockopt::subscribe, topic);
    if (i % 1'000 != 0) continue;
    CHECK(job.client.ask(CommandVerb::alerts).outcome == CommandOutcome::done);
    CHECK(job.rank.is_heard(0));  // A rank that is silent is dropped.
  }
#ifndef GRADMON_UNBOUNDED_MEMORY
  CHECK(eventually([&] { return job.bound_at() > before; }));
#else
  static_cast<void>(before);
#endif
  greedy.close();
  Subscriber honest(job.place, "AnomalyNan");
  CHECK(job.reaches(honest, "AnomalyNan"));
  CHECK(job.rank.is_heard(0));
}

TEST_CASE("a subscriber's message beyond the bound ends its own connection alone") {
  PublishingJob job;
  Subscriber honest(job.place, "");
  REQUIRE(job.reaches(honest, "AnomalyNan"));
  const std::int64_t before = job.bound_at();
  Subscriber hostile(job.place, std::string(8 * kMostFromSubscriber, 't'));
  for (int i = 0; i < 20; ++i) {
    job.raise("AnomalyNan");
    REQUIRE(honest.next(milliseconds{10'000}));
  }
  CHECK(job.bound_at() == before);
}

TEST_CASE("without alert rules no publisher runs before an alert arrives") {
  PublishingJob job("{}");
  const PublishingJob with_rules;  // starts later
  REQUIRE(eventually([&] { return with_rules.bound_at() != 0; }));
  CHECK(job.bound_at() == 0);
  CHECK(job.client.status().alerts_endpoint.empty());
  job.raise("AnomalyNan");
  CHECK(eventually([&] { return job.bound_at() != 0; }));
  CHECK(job.client.status().warnings.empty());
}

TEST_CASE("the publisher's socket is made again when it was removed, and goes with the job") {
  std::filesystem::path socket;
  {
    PublishingJob job;
    socket = job.place.directory.alerts();
    REQUIRE(eventually([&] { return std::filesystem::exists(socket); }));
    std::filesystem::remove(socket);
    REQUIRE(eventually([&] { return std::filesystem::exists(socket); }, milliseconds{20'000}));
    Subscriber subscriber(job.place, "");
    CHECK(job.reaches(subscriber, "AnomalyNan"));
    job.hub.kill(SIGKILL);
    CHECK(eventually([&] { return !std::filesystem::exists(socket); }));
  }
}

TEST_CASE("a publisher that does not start is named in the warnings, with the alerts that it missed") {
  const JobPlace place;
  auto now = AlertPublisher::Clock::time_point{} + std::chrono::hours(1);
  AlertPublisher none({{}, place.directory.alerts()});  // A hub without a publisher's program is silent.
  none.tend(now, true);
  none.publish({Alert{}});
  CHECK(none.endpoint().empty());
  CHECK(none.warnings().empty());
  AlertPublisher publisher({"/bin/false", place.directory.alerts()});
  CHECK(publisher.endpoint().empty());
  CHECK(publisher.warnings().empty());
  publisher.tend(now, true);
  REQUIRE(eventually([&] {
    publisher.tend(now, true);
    return !publisher.warnings().empty();
  }));
  CHECK(publisher.warnings().front() == "alerts are not published: the publisher exited with status 1");
  CHECK(publisher.endpoint().empty());
  publisher.publish({Alert{}, Alert{}});
  CHECK(publisher.warnings().back() == "2 alerts were not published (gradmonctl alerts lists them)");
}

// A program in place of the publisher: makes the file that it is to listen at, and never reads its input.
struct DeafProgram {
  const TemporaryDirectory scratch;
  const std::filesystem::path path = scratch / "deaf", socket = scratch / "pub.sock";
  AlertPublisher publisher{{path, socket}};
  AlertPublisher::Clock::time_point now = AlertPublisher::Clock::time_point{} + std::chrono::hours(1);

  DeafProgram() {
    write_text(path, "#!/bin/sh\necho >> \"$3.starts\"\n: > \"$3\"\nexec sleep 1000\n");
    REQUIRE(::chmod(path.c_str(), 0700) == 0);
  }
  ~DeafProgram() {
    write_text(path, "#!/bin/sh\n");  // It ends at once.
    std::filesystem::remove(socket);
    pass(AlertPublisher::kRestartAfter);
  }
  void pass(std::chrono::seconds time) { publisher.tend(now += time, true); }
  std::size_t starts() const {
    std::error_code none;
    const auto lines = std::filesystem::file_size(scratch / "pub.sock.starts", none);
    return none ? 0 : lines;
  }
  bool has_started(std::size_t times) const {
    return eventually([&] { return starts() == times && std::filesystem::exists(socket); });
  }
};

TEST_CASE("a publisher that takes no alert for ten seconds is started anew") {
  DeafProgram deaf;
  deaf.pass(std::chrono::seconds{0});
  REQUIRE(deaf.has_started(1));
  for (int i = 0; i < 60; ++i) deaf.pass(std::chrono::seconds{1});
  CHECK(deaf.starts() == 1);  // Nothing waits.
  Alert alert;
  alert.message = std::string(1'000, 'm');
  for (int i = 0; i < 1'000; ++i) deaf.publisher.publish({alert});
  CHECK_FALSE(deaf.publisher.warnings().empty());
  for (int i = 0; i < 10; ++i) deaf.pass(std::chrono::seconds{1});
  CHECK(deaf.starts() == 1);
  deaf.pass(std::chrono::seconds{1});
  CHECK(deaf.has_started(2));
}

TEST_CASE("a publisher whose socket was replaced is started anew") {
  DeafProgram deaf;
  deaf.pass(std::chrono::seconds{0});
  REQUIRE(deaf.has_started(1));
  deaf.pass(AlertPublisher::kRestartAfter);
  CHECK(deaf.starts() == 1);
  write_text(deaf.scratch / "another", "");
  std::filesystem::rename(deaf.scratch / "another", deaf.socket);
  deaf.pass(std::chrono::seconds{1});
  CHECK(deaf.has_started(2));
}

TEST_CASE("a rank that floods the hub with alerts harms neither the other rank nor its alerts") {
  HubWithRanks job(2);
  AlertReport one;
  one.alerts.resize(1);
  job.rank(0).say(0, one);
  REQUIRE(job.alerts(1).size() == 1);
  AlertReport many;
  many.alerts.resize(16);
  for (Alert& alert : many.alerts) alert.message = std::string(900, 'm');
  for (int i = 0; i < 2'000; ++i) job.rank(1).say(1, many);
  CHECK(job.rank(0).is_heard(0));
  const std::vector<Alert> listed = job.alerts(1);
  CHECK(listed[0].rank == Rank{0});
  CHECK(listed.size() <= 1 + 1 + 256);  // with the first one of its step
}

TEST_CASE("a hub that starts again after a kill continues its epoch, with its members and their alerts") {
  const JobPlace place;
  auto hub = std::make_unique<HubProcess>(place);
  std::string epoch;
  {
    HubPeer rank0(place), rank1(place);
    rank0.join(place, 0, 2);
    rank1.join(place, 1, 2);
    epoch = rank0.epoch;
    AlertReport report;
    report.alerts.resize(2);
    report.alerts[1].message = "the second";
    rank0.say(0, report);
    const auto file = place.output() / ".gradmon" / epoch / "alerts.jsonl";
    REQUIRE(eventually([&] { return read_alerts(file).size() == 2; }));
    hub->kill(SIGKILL);
    REQUIRE(hub->ended_within(std::chrono::seconds(10)));
    CHECK(rank0.is_closed());
  }
  hub = std::make_unique<HubProcess>(place);
  HubPeer rank(place), client(place);
  CHECK(rank.join(place, 0, 2).refused ==
        "rank 0 already belongs to pid " + std::to_string(getpid()) + " on " + host_name());
  CHECK(rank.epoch == epoch);
  CHECK(client.status().ranks.at(1).state != "absent");
  CommandReply reply;
  REQUIRE(eventually([&] {
    reply = client.ask(CommandVerb::alerts);
    return reply.alerts.size() == 2;
  }));
  CHECK(reply.alerts[1].message == "the second");
}

// The norm of one parameter after the update.
ReplicaRows rows_of(double norm, std::int64_t step) {
  auto targets = std::make_shared<ReplicaTargets>();
  targets->emplace_back(0, "fc1.weight");
  return {Revision{1}, step, Kind::param_updated, bit_of(Op::norm), std::move(targets), {norm}};
}

ReplicaDigests digests_of(const ReplicaRows& rows) { return {9, 2, {fold_into_digest(rows)}}; }

void answer(HubPeer& peer, int rank, const ReplicaRows& rows) {
  const auto request = peer.hear<ReplicaRequest>();
  REQUIRE(request);
  CHECK(request->step == rows.step);
  peer.say(rank,
           ReplicaValues{*request, 9, 1e-6, rows_in_bucket(rows, static_cast<std::size_t>(request->bucket))});
}

TEST_CASE("two ranks whose values differ are asked for them, and the second one is told of its alert") {
  HubWithRanks job(2);
  CHECK(job.welcome.takes_replicas);
  for (const auto& [step, of_rank1] : {std::pair{3, 1.5}, std::pair{4, 2.5}}) {
    job.rank(0).say(0, digests_of(rows_of(1.5, step)));
    job.rank(1).say(1, digests_of(rows_of(of_rank1, step)));
  }
  answer(job.rank(0), 0, rows_of(1.5, 4));
  answer(job.rank(1), 1, rows_of(2.5, 4));
  const auto found = job.rank(1).hear<AlertReport>();
  REQUIRE(found);
  REQUIRE(found->alerts.size() == 1);
  CHECK(found->alerts[0].tag_name == "0:fc1.weight/rank1/param_updated");
  CHECK(found->alerts[0].step == 4);
  CHECK(job.alerts(0).empty());  // The rank itself reports it.
}

TEST_CASE("a rank that floods the hub with digests does not keep it from answering") {
  HubWithRanks job(2);
  for (std::int64_t i = 0; i < 2'000; ++i) {
    ReplicaDigests digests{static_cast<std::uint64_t>(i % 7), 2, {}};
    for (std::int64_t k = 0; k < 20; ++k) digests.digests.push_back(fold_into_digest(rows_of(7, 20 * i + k)));
    job.rank(1).say(1, digests);
  }
  CHECK(job.rank(0).is_heard(0));
  CHECK(job.alerts(0).empty());
}

}  // namespace

}  // namespace gradmon
