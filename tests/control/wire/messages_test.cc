// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>
#include <random>
#include <variant>

#include "control/alerts/replicas.h"
#include "control/debian_version.h"
#include "control/wire/command.h"
#include "control/wire/field_codec.h"
#include "control/wire/messages.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {

// The value after it was encoded as a frame and decoded.
template <class T>
T frame_round_trip(const T& value) {
  const auto frame = decode_frame(encode(Frame(value)));
  REQUIRE(frame);
  return std::get<T>(*frame);
}

namespace {

template <class T>
T round_trip(const Message& message) {
  const auto frame = decode_frame(encode(Frame(Bundles{{"epoch", {{3, 7}}, message}})));
  REQUIRE(frame);
  const auto& bundles = std::get<Bundles>(*frame);
  REQUIRE(bundles.size() == 1);
  REQUIRE(bundles[0].epoch == "epoch");
  REQUIRE(bundles[0].to == Outgoing::To{{3, 7}});
  return std::get<T>(bundles[0].message);
}

std::string bytes_of(const Message& message) { return encode(Frame(Bundles{{"", {}, message}})); }

template <class T>
T entry_round_trip(const T& value) {
  const auto entry = decode_log_entry(encode(LogEntry(value)));
  REQUIRE(entry);
  return std::get<T>(*entry);
}

std::shared_ptr<Plan> plan() {
  auto plan = std::make_shared<Plan>();
  plan->on = true;
  plan->config_text = std::string("{\0 \xff}", 5);
  plan->config_sha256 = "hash";
  plan->collect_times = 3;
  plan->step_interval = 4;
  plan->at = Step{50};
  plan->continues = Schedule(Step{5}, 2, 9);
  plan->file = FileIdentity{-5, 6, "sum"};
  plan->cause = Cause::budget;
  plan->by = "somebody";
  plan->request_id = "id";
  plan->lookahead = 11;
  plan->max_wait = Ticks{1'234};
  plan->max_overhead = 0.01;
  auto next = std::make_shared<Plan>();
  next->by = "next";
  next->continues = left_at(Schedule(Step{5}, 2, 9), Step{8});
  plan->returns_to = next;
  return plan;
}

Verdict commit() { return {Revision{8}, plan(), Step{100}, AbortReason::none, ""}; }
KnownDecisions known_decisions() { return {Revision{9}, commit()}; }

Hello hello() {
  return {"launch", 4, "host", 77, "process", Step{5}, 2, 13, Step{6}, false, "held epoch", 12, commit()};
}

void check_plan(const Plan& back) {
  const auto sent = plan();
  CHECK(back.on);
  CHECK(back.config_text == sent->config_text);
  CHECK(back.config_sha256 == "hash");
  CHECK(back.collect_times == 3);
  CHECK(back.step_interval == 4);
  CHECK(back.at == Step{50});
  REQUIRE(back.continues);
  CHECK(back.continues->first() == Step{5});
  CHECK(back.continues->interval() == 2);
  CHECK(back.continues->times() == 9);
  CHECK(back.file == sent->file);
  CHECK(back.cause == Cause::budget);
  CHECK(back.by == "somebody");
  CHECK(back.request_id == "id");
  CHECK(back.lookahead == 11);
  CHECK(back.max_wait == Ticks{1'234});
  CHECK(back.max_overhead == 0.01);
  REQUIRE(back.returns_to);
  CHECK(back.returns_to->by == "next");
  REQUIRE(back.returns_to->continues);
  CHECK(back.returns_to->continues->first() == kNever);
  CHECK(back.returns_to->continues->times() == 7);
}

void check_known_decisions(const KnownDecisions& back) {
  CHECK(back.closed == Revision{9});
  REQUIRE(back.commit);
  CHECK(back.commit->revision == Revision{8});
  CHECK(back.commit->effective == Step{100});
  REQUIRE(back.commit->plan);
  check_plan(*back.commit->plan);
}

void check_hello(const Hello& back) {
  CHECK(back.launch_id == "launch");
  CHECK(back.world_size == 4);
  CHECK(back.host == "host");
  CHECK(back.pid == 77);
  CHECK(back.process_id == "process");
  CHECK(back.start_iteration == Step{5});
  CHECK(back.version == 2);
  CHECK(back.number == 13);
  CHECK(back.step == Step{6});
  CHECK_FALSE(back.lapsed);
  CHECK(back.held_epoch == "held epoch");
  CHECK(back.epoch_order == 12);
}

// --- Member to coordinator. ---

TEST_CASE("a Hello is decoded with all its fields") {
  const Hello back = round_trip<Hello>(hello());
  check_hello(back);
  REQUIRE(back.held);
  check_plan(*back.held->plan);
  Hello fresh = hello();
  fresh.held.reset();
  fresh.lapsed = true;
  CHECK_FALSE(round_trip<Hello>(fresh).held);
  CHECK(round_trip<Hello>(fresh).lapsed);
}

TEST_CASE("the answers of a member are decoded as they were sent") {
  const auto offered = round_trip<Offered>(Offered{Revision{1}, "s", 5, "u"});
  CHECK(offered.revision == Revision{1});
  CHECK(offered.config_sha256 == "s");
  CHECK(offered.matches == 5);
  CHECK(offered.unmatched == "u");
  const auto ready = round_trip<Ready>(Ready{Revision{2}, "s", Step{3}});
  CHECK(ready.revision == Revision{2});
  CHECK(ready.config_sha256 == "s");
  CHECK(ready.fence == Step{3});
  CHECK(round_trip<Reject>(Reject{Revision{3}, "why"}).revision == Revision{3});
  CHECK(round_trip<Reject>(Reject{Revision{3}, "why"}).reason == "why");
  CHECK(round_trip<Busy>(Busy{Revision{4}, "why"}).revision == Revision{4});
  CHECK(round_trip<Busy>(Busy{Revision{4}, "why"}).reason == "why");
  CHECK(round_trip<Applied>(Applied{Revision{5}, Step{4}}).revision == Revision{5});
  CHECK(round_trip<Applied>(Applied{Revision{5}, Step{4}}).step == Step{4});
  CHECK(round_trip<Finished>(Finished{Revision{6}}).revision == Revision{6});
  CHECK(round_trip<Left>(Left{Step{-1}}).last == Step{-1});
  round_trip<Disconnected>(Disconnected{});
}

TEST_CASE("a Progress is decoded with all its fields") {
  Progress progress;
  progress.number = 41;
  progress.step = Step{12};
  progress.step_ms = 1.5;
  progress.collecting = true;
  progress.waiting = true;
  progress.waited_ms = 250;
  progress.records = 1'000;
  progress.dropped = 3;
  progress.closed = Revision{7};
  progress.applied = Revision{6};
  progress.applied_step = Step{10};
  progress.finished = Revision{2};
  progress.error = "\x01\xff";
  progress.warnings = {"one", "two"};
  progress.overhead = {Revision{4}, 9, 0.041, 16};
  progress.targets = {24, 3, 1};
  progress.skipped = {5, Step{11}};
  progress.alerts = 77;
  progress.flight_written = 78;
  progress.flight_lost = 79;
  const Progress back = round_trip<Progress>(progress);
  CHECK(back.number == 41);
  CHECK(back.step == Step{12});
  CHECK(back.step_ms == 1.5);
  CHECK(back.collecting);
  CHECK(back.waiting);
  CHECK(back.waited_ms == 250);
  CHECK(back.records == 1'000);
  CHECK(back.dropped == 3);
  CHECK(back.closed == Revision{7});
  CHECK(back.applied == Revision{6});
  CHECK(back.applied_step == Step{10});
  CHECK(back.finished == Revision{2});
  CHECK(back.error == "\x01\xff");
  CHECK(back.warnings == std::vector<std::string>{"one", "two"});
  CHECK(back.overhead.revision == Revision{4});
  CHECK((back.overhead.collected == 9 && back.overhead.share == 0.041 && back.overhead.steps == 16));
  CHECK((back.targets.watched == 24 && back.targets.silent == 3 && back.targets.unmatched == 1));
  CHECK((back.skipped.count == 5 && back.skipped.last == Step{11}));
  CHECK(back.alerts == 77);
  CHECK(back.flight_written == 78);
  CHECK(back.flight_lost == 79);
}

TEST_CASE("an alert report is decoded with all its fields and within its bounds") {
  AlertReport sent;
  sent.left_out = 4;
  sent.alerts.resize(1);
  RankAlert& alert = sent.alerts[0];
  alert = {1, 2, Rank{3}, "rule", 4, 5, 6, 7, 8, "tag", "op", -0.5, 1e300, "message"};
  alert.value = std::numeric_limits<double>::quiet_NaN();
  const AlertReport back = round_trip<AlertReport>(sent);
  CHECK(back.left_out == 4);
  REQUIRE(back.alerts.size() == 1);
  CHECK(std::isnan(back.alerts[0].value));
  CHECK(bytes_of(back) == bytes_of(sent));
  sent.alerts.resize(1'000, alert);
  CHECK(round_trip<AlertReport>(sent).alerts.size() == kMostAlertsInAReport);
  CHECK(round_trip<AlertReport>(sent).left_out == 4 + 1'000 - kMostAlertsInAReport);
}

// A frame with one bundle: a message of these bytes under the number of its type.
std::string frame_with(std::uint32_t number, std::string_view bytes) {
  std::string message, bundles, frame;
  field_codec::put_bytes(number, bytes, message);
  field_codec::put_bytes(1, message, bundles);
  field_codec::put_bytes(1, bundles, frame);
  return frame;
}

TEST_CASE("a capture that returns to a capture is refused") {
  auto inner = std::make_shared<Plan>(*plan());
  auto outer = std::make_shared<Plan>(*plan());
  outer->returns_to = inner;
  CHECK_FALSE(decode_frame(encode(Frame(Bundles{{"epoch", {{3, 7}}, Offer{Revision{5}, outer}}}))));
}

TEST_CASE("a bundle with an invalid alert report is no frame") {
  CHECK_FALSE(decode_frame(frame_with(30, "\xff\xff")));
  CHECK(decode_frame(frame_with(30, "")));
}

TEST_CASE("the answer to a dry run is decoded as it was sent") {
  DryRunAnswer sent{"id", 3, "no", {}};
  sent.targets.counts = {7, 1, 1};
  sent.targets.unmatched = {{"fc9", {"fc1", "fc2"}, "why"}};
  sent.targets.targets = {{"actv", "fc1", -1, 0, 5, "frozen"}};
  sent.targets.left_out = 6;
  sent.targets.attached = {"Net: gradmon.Monitor", "\xff"};
  const DryRunAnswer back = round_trip<DryRunAnswer>(sent);
  CHECK(back.id == "id");
  CHECK(back.matches == 3);
  CHECK(back.objection == "no");
  CHECK(back.targets.counts.watched == 7);
  CHECK(back.targets.unmatched.at(0).nearest == std::vector<std::string>{"fc1", "fc2"});
  CHECK(back.targets.unmatched[0].error == "why");
  CHECK(back.targets.targets.at(0).last_step == -1);
  CHECK(back.targets.targets[0].silent_steps == 5);
  CHECK(back.targets.targets[0].why == "frozen");
  CHECK(back.targets.left_out == 6);
  CHECK(back.targets.attached == sent.targets.attached);
}

// --- Coordinator to member. ---

TEST_CASE("the messages of the coordinator are decoded as they were sent") {
  const Welcome back = round_trip<Welcome>(
      Welcome{"process", 3, 14, "why", true, true, "0badcafe", 1'234, 1'235, known_decisions(), true, true});
  CHECK(back.takes_alerts);
  CHECK(back.takes_replicas);
  CHECK(back.process_id == "process");
  CHECK(back.incarnation == 3);
  CHECK(back.number == 14);
  CHECK(back.refused == "why");
  CHECK(back.retry);
  CHECK(back.epoch_starts_on);
  CHECK(back.run_id == "0badcafe");
  CHECK(back.started == 1'234);
  CHECK(back.epoch_order == 1'235);
  check_known_decisions(back.last);
  const Offer offer = round_trip<Offer>(Offer{Revision{5}, plan()});
  CHECK(offer.revision == Revision{5});
  check_plan(*offer.plan);
  const Prepare prepare = round_trip<Prepare>(Prepare{Revision{5}, "s", 12, known_decisions()});
  CHECK(prepare.revision == Revision{5});
  CHECK(prepare.config_sha256 == "s");
  CHECK(prepare.lookahead == 12);
  check_known_decisions(prepare.last);
  check_known_decisions(round_trip<Decided>(Decided{known_decisions()}).last);
  CHECK_FALSE(round_trip<Decided>(Decided{{Revision{4}, {}}}).last.commit);
  CHECK(round_trip<ProgressAck>(ProgressAck{7}).number == 7);
  round_trip<LeftAck>(LeftAck{});
  round_trip<RejoinRequest>(RejoinRequest{});
  round_trip<Replaced>(Replaced{});
  check_plan(*round_trip<DryRun>(DryRun{"id", plan(), 512}).plan);
  CHECK(round_trip<DryRun>(DryRun{"id", plan(), 512}).room == 512);
  CHECK_FALSE(round_trip<DryRun>(DryRun{"id", nullptr, 0}).plan);
}

TEST_CASE("a bundle keeps the order of its messages and all addresses") {
  Bundles sent;
  sent.push_back({"e", {{0, 1}, {16'383, 5}}, ProgressAck{1}});
  sent.push_back({"", {}, LeftAck{}});
  const Bundles back = frame_round_trip(sent);
  REQUIRE(back.size() == 2);
  CHECK(back[0].to == sent[0].to);
  CHECK(back[1].to.empty());
  const auto envelopes = to_envelopes(back[0]);
  REQUIRE(envelopes.size() == 2);
  CHECK(envelopes[1].rank == Rank{16'383});
  CHECK(envelopes[1].incarnation == 5);
  CHECK(std::get<ProgressAck>(envelopes[1].message).number == 1);
  CHECK(to_envelopes(back[1]).empty());
  CHECK(frame_round_trip(Bundles{}).empty());
}

// --- The other frames. ---

TEST_CASE("bundles too long for one frame are split over several in the same order") {
  CHECK(encode_bundles({}).empty());
  Bundles bundles;
  for (int rank = 0; rank < 5; ++rank)
    bundles.push_back({"epoch", {{rank, 1}}, Reject{Revision{1}, std::string(900'000, 'x')}});
  const std::vector<std::string> frames = encode_bundles(bundles);
  CHECK(frames.size() > 2);
  std::vector<int> ranks;
  for (const std::string& frame : frames) {
    CHECK(frame.size() <= kMaxFrameBytes);
    const auto read = decode_frame(frame);
    REQUIRE(read);
    for (const Bundle& bundle : std::get<Bundles>(*read)) ranks.push_back(bundle.to.front().first);
  }
  CHECK(ranks == std::vector<int>{0, 1, 2, 3, 4});
  CHECK(encode_bundles({bundles.front(), bundles.front()}).size() == 1);
}

TEST_CASE("an Introduction is decoded as it was sent") {
  Introduction sent;
  sent.launch_id = std::string("l\0\n", 3);
  sent.rank = Rank{3};
  sent.world_size = 8;
  sent.output_dir = "/out";
  sent.endpoint = "tcp://h:1";
  sent.keys = "/keys";
  sent.insecure_loopback = true;
  sent.several_hosts = true;
  sent.master_addr = "node0";
  sent.has_store = true;
  const Introduction plain = frame_round_trip(sent);
  CHECK(plain.launch_id == sent.launch_id);
  CHECK(plain.rank == Rank{3});
  CHECK(plain.world_size == 8);
  CHECK_FALSE(plain.lead_job);
  CHECK(plain.output_dir == "/out");
  CHECK(plain.endpoint == "tcp://h:1");
  CHECK(plain.keys == "/keys");
  CHECK(plain.insecure_loopback);
  CHECK(plain.several_hosts == true);
  CHECK(plain.master_addr == "node0");
  CHECK(plain.has_store);
  sent.several_hosts = false;
  CHECK(frame_round_trip(sent).several_hosts == false);
  CHECK_FALSE(frame_round_trip(Introduction{}).several_hosts);
  sent.lead_job = LeadJob{"/c.json", false, "{}", "2.5", {"a", "b"}, "name"};
  const auto lead = frame_round_trip(sent).lead_job;
  REQUIRE(lead);
  CHECK(lead->config_path == "/c.json");
  CHECK_FALSE(lead->dynamic);
  CHECK(lead->static_text == "{}");
  CHECK(lead->torch == "2.5");
  CHECK(lead->hooks == std::vector<std::string>{"a", "b"});
  CHECK(lead->name == "name");
}

TEST_CASE("notes for training's store are decoded as they were sent") {
  const StoreNotes notes = frame_round_trip(StoreNotes{"own", {"a", std::string("\0\n", 2)}});
  CHECK(notes.own_note == "own");
  CHECK(notes.other_notes == std::vector<std::string>{"a", std::string("\0\n", 2)});
}

TEST_CASE("a line of the hub's log keeps its level and an unknown level is decoded as error") {
  CHECK(frame_round_trip(HubLogLine{LogLevel::warn, "x"}).level == LogLevel::warn);
  CHECK(frame_round_trip(HubLogLine{LogLevel::warn, "x"}).text == "x");
  CHECK(frame_round_trip(HubLogLine{static_cast<LogLevel>(77), "x"}).level == LogLevel::error);
}

// --- The decision log. ---

TEST_CASE("an entry of the decision log is decoded as it was written") {
  const auto asked = entry_round_trip(OfferedEntry{Revision{3}, plan(), 1'700'000});
  CHECK(asked.revision == Revision{3});
  CHECK(asked.at == 1'700'000);
  check_plan(*asked.plan);
  const auto verdict = entry_round_trip(commit());
  CHECK(verdict.effective == Step{100});
  check_plan(*verdict.plan);
  const auto abort = entry_round_trip(Verdict{Revision{4}, nullptr, {}, AbortReason::not_logged, "full"});
  CHECK_FALSE(abort.commit());
  CHECK(abort.abort_reason == AbortReason::not_logged);
  CHECK(abort.reason == "full");
  const auto joined = entry_round_trip(JoinedEntry{Rank{2}, 6, hello()});
  CHECK(joined.rank == Rank{2});
  CHECK(joined.incarnation == 6);
  check_hello(joined.hello);
  for (const auto how :
       {DepartureEntry::How::left, DepartureEntry::How::dropped, DepartureEntry::How::evicted}) {
    const auto gone = entry_round_trip(DepartureEntry{Rank{2}, how, Step{9}, "tester"});
    CHECK(gone.rank == Rank{2});
    CHECK(gone.how == how);
    CHECK(gone.last == Step{9});
    CHECK(gone.by == "tester");
  }
  CHECK(entry_round_trip(WrittenBackEntry{Revision{3}}).revision == Revision{3});
  CHECK(entry_round_trip(AppliedEntry{Revision{3}}).revision == Revision{3});
  CHECK_FALSE(decode_log_entry(""));
}

// --- Untrusted bytes. ---

TEST_CASE("a plan with numbers out of range is refused in every message and log entry") {
  for (auto invalidate :
       {+[](Plan& plan) { plan.step_interval = 0; }, +[](Plan& plan) { plan.collect_times = -1; },
        +[](Plan& plan) { plan.lookahead = 0; }, +[](Plan& plan) { plan.max_overhead = 0; },
        +[](Plan& plan) { plan.max_wait = Ticks{0}; },
        +[](Plan& plan) { plan.cause = static_cast<Cause>(99); },
        +[](Plan& plan) { plan.continues = Schedule(Step{0}, 0, 1); },
        +[](Plan& plan) { plan.continues = Schedule(Step{0}, 1, -1); }}) {
    auto invalid_plan = plan();
    invalidate(*invalid_plan);
    const Verdict verdict{Revision{1}, invalid_plan, Step{1}, AbortReason::none, ""};
    Hello holds = hello();
    holds.held = verdict;
    const KnownDecisions last{Revision{1}, verdict};
    CHECK_FALSE(decode_log_entry(encode(LogEntry(verdict))));
    CHECK_FALSE(decode_log_entry(encode(LogEntry(OfferedEntry{Revision{1}, invalid_plan}))));
    for (const Message& message :
         std::vector<Message>{holds, Offer{Revision{1}, invalid_plan}, Decided{last},
                              DryRun{"id", invalid_plan, 1}, Prepare{Revision{1}, "", 1, last}}) {
      CHECK_FALSE(decode_frame(encode(Frame(Bundles{{"e", {{0, 1}}, message}}))));
    }
  }
  CHECK_FALSE(
      decode_frame(encode(Frame(Bundles{{"e", {{0, 1}}, Prepare{Revision{1}, "", 0, known_decisions()}}}))));
}

TEST_CASE("an abort is refused where a commit is required") {
  Hello holds = hello();
  holds.held = Verdict{};
  const KnownDecisions last{Revision{1}, Verdict{}};
  CHECK_FALSE(decode_frame(encode(Frame(Bundles{{"e", {{0, 1}}, Decided{last}}}))));
  CHECK_FALSE(decode_frame(encode(Frame(Bundles{{"", {{0, 0}}, holds}}))));
  const Verdict unknown{Revision{1}, nullptr, {}, static_cast<AbortReason>(99), ""};
  CHECK_FALSE(decode_log_entry(encode(LogEntry(unknown))));
}

TEST_CASE("an impossible overhead or step time is decoded as unknown") {
  Progress progress;
  progress.overhead = {Revision{4}, 9, 0.1, -16};
  CHECK(round_trip<Progress>(progress).overhead.steps == 0);
  using Limits = std::numeric_limits<double>;
  for (const double wrong : {-1.0, Limits::quiet_NaN(), Limits::infinity()}) {
    progress.overhead = {Revision{4}, 9, wrong, 16};
    progress.step_ms = wrong;
    CHECK(round_trip<Progress>(progress).overhead.steps == 0);
    CHECK(round_trip<Progress>(progress).step_ms == 0);
  }
}

TEST_CASE("one invalid message makes the whole frame invalid") {
  const Bundles sent{{"e", {{0, 1}}, LeftAck{}}, {"e", {{0, 1}}, Decided{{Revision{1}, Verdict{}}}}};
  CHECK_FALSE(decode_frame(encode(Frame(sent))));
}

TEST_CASE("bytes that are no frame are an error with a reason") {
  for (const std::string& bytes :
       {std::string(), std::string("x"), std::string(60'000, '\xff'), std::string("\x0a\x02\x0a\x00", 4)}) {
    const auto frame = decode_frame(bytes);
    REQUIRE_FALSE(frame);
    CHECK_FALSE(frame.error().empty());
  }
}

TEST_CASE("random bytes are refused or decoded to a value that can be encoded again") {
  std::mt19937 random(7);
  const std::vector<std::string> valid_encodings = {
      encode(Frame(Bundles{{"e", {{0, 1}}, Decided{known_decisions()}}, {"", {{0, 0}}, hello()}})),
      encode(Frame(Introduction{"l", Rank{0}, 2, LeadJob{}, "", "", "", false, true, "", true})),
      encode(LogEntry(JoinedEntry{Rank{1}, 2, hello()}))};
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes =
        i % 4 != 0 ? valid_encodings[static_cast<std::size_t>(i % 4 - 1)] : std::string(random() % 200, '\0');
    for (std::size_t flips = 1 + random() % 8; flips > 0 && !bytes.empty(); --flips) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    bytes.resize(bytes.size() - (random() % 8 == 0 ? random() % (bytes.size() + 1) : 0));
    if (auto frame = decode_frame(bytes)) REQUIRE(decode_frame(encode(*frame)));
    if (auto entry = decode_log_entry(bytes)) REQUIRE(decode_log_entry(encode(*entry)));
  }
}

template <class T>
T round_trip(const T& message) {
  const auto frame = decode_frame(encode(Frame(Bundles{{"epoch", {{3, 7}}, message}})));
  REQUIRE(frame);
  return std::get<T>(std::get<Bundles>(*frame).at(0).message);
}

TEST_CASE("what ranks tell of their replicas is decoded with all its fields") {
  const ReplicaDigests digests{9, 2, {{Revision{4}, 5, 3, std::string(kReplicaDigestBytes, '\xff')}}};
  CHECK(bytes_of(round_trip(digests)) == bytes_of(digests));
  const ReplicaRequest request{Revision{4}, 5, 3, 63};
  CHECK(bytes_of(round_trip(request)) == bytes_of(request));
  ReplicaValues values{request, 9, 1e-6, {{1, "fc1", {{3, 0.0}, {4, -0.5}}}, {0, "fc2", {}}}};
  const ReplicaValues back = round_trip(values);
  CHECK(bytes_of(back) == bytes_of(values));
  REQUIRE(back.rows.size() == 2);
  CHECK(back.rows[0].values.size() == 2);
  CHECK(back.rows[0].values[0].value == 0);
  values.rows.resize(kMostReplicaRows, ReplicaRow{0, std::string(kMostReplicaName, 'n'), {{3, 0.5}}});
  CHECK(round_trip(values).rows.size() == kMostReplicaRows);
}

TEST_CASE("what ranks tell of their replicas is refused if it is out of range") {
  const auto refused = [](const Message& message) {
    return !decode_frame(encode(Frame(Bundles{{"epoch", {{3, 7}}, message}})));
  };
  CHECK(refused(ReplicaDigests{9, 1, {}}));
  CHECK(refused(ReplicaDigests{9, 2, {{Revision{4}, 5, 3, "short"}}}));
  CHECK(refused(ReplicaRequest{Revision{4}, 5, 3, 64}));
  CHECK(refused(ReplicaValues{{Revision{4}, 5, 99, 0}, 9, 1e-6, {}}));
  CHECK_FALSE(decode_frame(frame_with(31, "\xff\xff")));
  CHECK_FALSE(decode_frame(frame_with(33, "")));
}

TEST_CASE("a command is decoded as it was sent") {
  Command sent;
  sent.verb = CommandVerb::evict;
  sent.request_id = "id";
  sent.by = "me";
  sent.at = 5;
  sent.collect_times = 0;
  sent.step_interval = 7;
  sent.edits = {{"/a/b", "1"}, {"", ""}};
  sent.config_text = "{}";
  sent.rank = 3;
  sent.after = 1ULL << 63;
  const Command back = frame_round_trip(sent);
  CHECK(back.verb == CommandVerb::evict);
  CHECK(back.request_id == "id");
  CHECK(back.by == "me");
  CHECK(back.at == 5);
  CHECK(back.collect_times == 0);
  CHECK(back.step_interval == 7);
  CHECK(back.edits == sent.edits);
  CHECK(back.config_text == "{}");
  CHECK(back.rank == 3);
  CHECK(back.after == 1ULL << 63);
  const Command bare = frame_round_trip(Command{});
  CHECK_FALSE((bare.at || bare.collect_times || bare.step_interval || bare.rank));
}

TEST_CASE("a command and an outcome of a later release are decoded as unknown and as failed") {
  Command later;
  later.verb = static_cast<CommandVerb>(static_cast<int>(CommandVerb::alerts) + 1);
  later.release = "9.9.9";
  later.force = true;
  const Command read = frame_round_trip(later);
  CHECK(read.verb == CommandVerb::unknown);
  CHECK(read.release == "9.9.9");
  CHECK(read.force);
  CommandReply reply;
  reply.outcome = static_cast<CommandOutcome>(99);
  CHECK(frame_round_trip(AddressedReply{"id", reply}).reply.outcome == CommandOutcome::failed);
}

TEST_CASE("a reply is decoded with all its fields") {
  CommandReply reply;
  reply.outcome = GENERATE(CommandOutcome::no_lead, CommandOutcome::incomplete);
  reply.message = "not in time";
  reply.revision = Revision{2};
  reply.settled = true;
  reply.applied_by_all = true;
  reply.effective_step = 70;
  reply.status = Status{};
  reply.status->launch_id = "launch";  // field_codec_test checks the other fields
  reply.history.resize(1);
  reply.config_text = "after";
  reply.config_before = "before";
  reply.rank_answers = {{Rank{3}, true, 7, "no", {}}};
  reply.rank_answers[0].targets.left_out = 6;
  reply.alerts.resize(2);
  reply.alerts[1].message = "\xff";
  reply.raised_alerts = 9;
  reply.collects_nothing = true;
  const AddressedReply addressed = frame_round_trip(AddressedReply{"id", reply});
  const CommandReply& back = addressed.reply;
  CHECK(addressed.request_id == "id");
  CHECK(back.outcome == reply.outcome);
  CHECK(back.message == "not in time");
  CHECK(back.revision == Revision{2});
  CHECK(back.settled);
  CHECK(back.applied_by_all);
  CHECK(back.effective_step == 70);
  REQUIRE(back.status);
  CHECK(back.status->launch_id == "launch");
  CHECK(back.history.size() == 1);
  CHECK(back.config_text == "after");
  CHECK(back.config_before == "before");
  REQUIRE(back.rank_answers.size() == 1);
  CHECK(back.rank_answers[0].rank == Rank{3});
  CHECK(back.rank_answers[0].known);
  CHECK(back.rank_answers[0].matches == 7);
  CHECK(back.rank_answers[0].objection == "no");
  CHECK(back.rank_answers[0].targets.left_out == 6);
  REQUIRE(back.alerts.size() == 2);
  CHECK(back.alerts[1].message == "\xff");
  CHECK(back.raised_alerts == 9);
  CHECK(back.collects_nothing);
  CHECK(frame_round_trip(*reply.status).launch_id == "launch");
}

TEST_CASE("an entry of the history is decoded with all its fields") {
  HistoryEntry entry;
  entry.revision = Revision{4};
  entry.cause = "ctl";
  entry.by = "somebody";
  entry.verdict = "commit";
  entry.reason = "why";
  entry.on = true;
  entry.proposed_at = 1'700'000;
  entry.effective_step = 50;
  entry.applied = {{0, 50}, {7, 51}};
  entry.finished_step = 90;
  entry.request_id = "r";
  entry.final = true;
  CommandReply reply;
  reply.history = {entry, HistoryEntry{}};
  const AddressedReply addressed = frame_round_trip(AddressedReply{"id", reply});
  REQUIRE(addressed.reply.history.size() == 2);
  const HistoryEntry& back = addressed.reply.history[0];
  CHECK(back.revision == Revision{4});
  CHECK(back.cause == "ctl");
  CHECK(back.by == "somebody");
  CHECK(back.verdict == "commit");
  CHECK(back.reason == "why");
  CHECK(back.on);
  CHECK(back.proposed_at == 1'700'000);
  CHECK(back.effective_step == 50);
  CHECK(back.applied == entry.applied);
  CHECK(back.finished_step == 90);
  CHECK(back.request_id == "r");
  CHECK(back.final);
  CHECK_FALSE(addressed.reply.history[1].final);
}

}  // namespace

}  // namespace gradmon
