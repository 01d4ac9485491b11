// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <random>

#include "control/alerts/replicas.h"
#include "control/wire/command.h"
#include "control/wire/field_codec.h"
#include "control/wire/messages.h"
#include "tests/support/catch.h"
#include "tests/support/golden.h"

namespace gradmon {

namespace {

std::string frame_of(const Message& message) { return encode(Frame(Bundles{{"epoch", {{3, 7}}, message}})); }

// The value after it was encoded as a frame and decoded.
template <class T>
T frame_round_trip(const T& value) {
  const auto frame = decode_frame(encode(Frame(value)));
  REQUIRE(frame);
  return std::get<T>(*frame);
}

template <class T>
T round_trip(const T& message) {
  return std::get<T>(frame_round_trip(Bundles{{"epoch", {{3, 7}}, message}}).at(0).message);
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
  return {"launch", 4, "host", 77, "process", Step{5}, 2, 13, Step{6}, true, "held epoch", 12, commit()};
}

Progress progress() {
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
  return progress;
}

AlertReport alert_report() {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  return {{{1, 2, Rank{3}, "rule", 4, 5, 6, 7, 8, "tag", "op", nan, 1e300, "message"}}, 4};
}

DryRunAnswer dry_run_answer() {
  DryRunAnswer answer{"id", 3, "no", {}};
  answer.targets.counts = {7, 1, 1};
  answer.targets.unmatched = {{"fc9", {"fc1", "fc2"}, "why"}};
  answer.targets.targets = {{"actv", "fc1", -1, 0, 5, "frozen"}};
  answer.targets.left_out = 6;
  answer.targets.attached = {"Net: gradmon.Monitor", "\xff"};
  return answer;
}

// Each message with a value in each of its fields.
std::vector<Message> messages() {
  const ReplicaRequest request{Revision{4}, 5, 3, 63};
  return {
      hello(),
      Offered{Revision{1}, "s", 5, "u"},
      Ready{Revision{2}, "s", Step{3}},
      Reject{Revision{3}, "why"},
      Busy{Revision{4}, "why"},
      Applied{Revision{5}, Step{4}},
      Finished{Revision{6}},
      Left{Step{-1}},
      Disconnected{},
      progress(),
      alert_report(),
      dry_run_answer(),
      ReplicaDigests{9, 2, {{Revision{4}, 5, 3, std::string(kReplicaDigestBytes, '\xff')}}},
      request,
      ReplicaValues{request, 9, 1e-6, {{1, "fc1", {{3, 0.0}, {4, -0.5}}}, {0, "fc2", {}}}},
      Welcome{"process", 3, 14, "why", true, true, "0badcafe", 1'234, 1'235, known_decisions(), true, true},
      Offer{Revision{5}, plan()},
      Prepare{Revision{5}, "s", 12, known_decisions()},
      Decided{known_decisions()},
      Decided{{Revision{4}, {}}},
      ProgressAck{7},
      LeftAck{},
      RejoinRequest{},
      Replaced{},
      DryRun{"id", plan(), 512},
      DryRun{"id", nullptr, 0}};
}

Introduction introduction() {
  Introduction sent;
  sent.launch_id = std::string("l\0\n", 3);
  sent.rank = Rank{3};
  sent.world_size = 8;
  sent.output_dir = "/out";
  sent.endpoint = "tcp://h:1";
  sent.keys = "/keys";
  sent.insecure_loopback = true;
  sent.several_hosts = false;
  sent.master_addr = "node0";
  sent.has_store = true;
  sent.lead_job = LeadJob{"/c.json", false, "{}", "2.5", {"a", "b"}, "name"};
  return sent;
}

Command command() {
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
  sent.release = "9.9.9";
  sent.force = true;
  return sent;
}

HistoryEntry history_entry() {
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
  return entry;
}

CommandReply reply() {
  CommandReply reply;
  reply.outcome = CommandOutcome::incomplete;
  reply.message = "not in time";
  reply.revision = Revision{2};
  reply.settled = true;
  reply.applied_by_all = true;
  reply.effective_step = 70;
  reply.status = Status{};
  reply.status->launch_id = "launch";  // field_codec_test checks the other fields
  reply.history = {history_entry(), HistoryEntry{}};
  reply.config_text = "after";
  reply.config_before = "before";
  reply.rank_answers = {{Rank{3}, true, 7, "no", {}}};
  reply.rank_answers[0].targets.left_out = 6;
  reply.alerts.resize(2);
  reply.alerts[1].message = "\xff";
  reply.raised_alerts = 9;
  reply.collects_nothing = true;
  reply.release = "9.9.9";
  return reply;
}

std::vector<Frame> frames() {
  Command bare;
  bare.release.clear();
  std::vector<Frame> frames{introduction(), Introduction{}, command(), bare, AddressedReply{"id", reply()}};
  frames.insert(frames.end(), {StoreNotes{"own", {"a", std::string("\0\n", 2)}}, *reply().status, Bundles{},
                               HubLogLine{LogLevel::warn, "x"}});
  for (const Message& message : messages()) frames.emplace_back(Bundles{{"epoch", {{3, 7}}, message}});
  return frames;
}

std::vector<LogEntry> log_entries() {
  using How = DepartureEntry::How;
  return {OfferedEntry{Revision{3}, plan(), 1'700'000},
          commit(),
          Verdict{Revision{4}, nullptr, {}, AbortReason::not_logged, "full"},
          JoinedEntry{Rank{2}, 6, hello()},
          DepartureEntry{Rank{2}, How::left, Step{9}, "tester"},
          DepartureEntry{Rank{2}, How::dropped, Step{9}, "tester"},
          DepartureEntry{Rank{2}, How::evicted, Step{9}, "tester"},
          WrittenBackEntry{Revision{3}},
          AppliedEntry{Revision{3}}};
}

// Bytes in one line: each that is not printable, and the backslash, by its number.
std::string printable(const std::string& bytes) {
  std::string line;
  for (const char byte : bytes) {
    char number[8];
    std::snprintf(number, sizeof number, "\\x%02x", static_cast<unsigned char>(byte));
    line += byte < ' ' || byte > '~' || byte == '\\' ? number : std::string(1, byte);
  }
  return line + "\n";
}

// A field that is not encoded, or under another number, changes the golden file; one that is not decoded
// is missing from the second encoding.
TEST_CASE("every frame and log entry has the bytes of the golden file, and is decoded without a loss") {
  std::string lines;
  for (const Frame& frame : frames()) {
    const std::string bytes = encode(frame);
    const auto back = decode_frame(bytes);
    CAPTURE(printable(bytes));
    REQUIRE(back);
    CHECK(back->index() == frame.index());
    CHECK(encode(*back) == bytes);
    lines += printable(bytes);
  }
  for (const LogEntry& entry : log_entries()) {
    const std::string bytes = encode(entry);
    const auto back = decode_log_entry(bytes);
    CAPTURE(printable(bytes));
    REQUIRE(back);
    CHECK(back->index() == entry.index());
    CHECK(encode(*back) == bytes);
    lines += printable(bytes);
  }
  const std::string difference = golden_difference("messages.txt", lines);
  INFO(difference);
  CHECK(difference.empty());
  CHECK_FALSE(decode_log_entry(""));
}

TEST_CASE("the schedule of a plan is decoded as it was sent, also if it has no first step") {
  const Offer offer = round_trip(Offer{Revision{5}, plan()});
  REQUIRE(offer.plan->continues);
  CHECK(offer.plan->continues->first() == Step{5});
  CHECK(offer.plan->continues->interval() == 2);
  CHECK(offer.plan->continues->times() == 9);
  REQUIRE(offer.plan->returns_to);
  CHECK(offer.plan->returns_to->continues->first() == kNever);
  CHECK(offer.plan->returns_to->continues->times() == 7);
}

TEST_CASE("what is not set is decoded as not set") {
  Hello fresh = hello();
  fresh.held.reset();
  fresh.lapsed = false;
  CHECK_FALSE(round_trip(fresh).held);
  CHECK_FALSE(round_trip(fresh).lapsed);
  CHECK_FALSE(round_trip(Decided{{Revision{4}, {}}}).last.commit);
  CHECK_FALSE(round_trip(DryRun{"id", nullptr, 0}).plan);
  CHECK_FALSE(frame_round_trip(Introduction{}).lead_job);
  CHECK_FALSE(frame_round_trip(Introduction{}).several_hosts);
  const Command bare = frame_round_trip(Command{});
  CHECK_FALSE((bare.at || bare.collect_times || bare.step_interval || bare.rank));
}

TEST_CASE("a message with more rows than its bound is cut, and the rows left out are counted") {
  AlertReport sent = alert_report();
  sent.alerts.resize(1'000, sent.alerts[0]);
  CHECK(round_trip(sent).alerts.size() == kMostAlertsInAReport);
  CHECK(round_trip(sent).left_out == 4 + 1'000 - kMostAlertsInAReport);
  ReplicaValues values{{Revision{4}, 5, 3, 63}, 9, 1e-6, {}};
  values.rows.resize(kMostReplicaRows, ReplicaRow{0, std::string(kMostReplicaName, 'n'), {{3, 0.5}}});
  CHECK(round_trip(values).rows.size() == kMostReplicaRows);
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
  CHECK_FALSE(decode_frame(frame_of(Offer{Revision{5}, outer})));
}

TEST_CASE("a bundle with an invalid alert report is no frame") {
  CHECK_FALSE(decode_frame(frame_with(30, "\xff\xff")));
  CHECK(decode_frame(frame_with(30, "")));
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

TEST_CASE("a line of the hub's log keeps its level and an unknown level is decoded as error") {
  CHECK(frame_round_trip(HubLogLine{LogLevel::warn, "x"}).level == LogLevel::warn);
  CHECK(frame_round_trip(HubLogLine{LogLevel::warn, "x"}).text == "x");
  CHECK(frame_round_trip(HubLogLine{static_cast<LogLevel>(77), "x"}).level == LogLevel::error);
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
      CHECK_FALSE(decode_frame(frame_of(message)));
    }
  }
  CHECK_FALSE(decode_frame(frame_of(Prepare{Revision{1}, "", 0, known_decisions()})));
}

TEST_CASE("an abort is refused where a commit is required") {
  Hello holds = hello();
  holds.held = Verdict{};
  const KnownDecisions last{Revision{1}, Verdict{}};
  CHECK_FALSE(decode_frame(frame_of(Decided{last})));
  CHECK_FALSE(decode_frame(frame_of(holds)));
  const Verdict unknown{Revision{1}, nullptr, {}, static_cast<AbortReason>(99), ""};
  CHECK_FALSE(decode_log_entry(encode(LogEntry(unknown))));
}

TEST_CASE("an impossible overhead or step time is decoded as unknown") {
  Progress progress;
  progress.overhead = {Revision{4}, 9, 0.1, -16};
  CHECK(round_trip(progress).overhead.steps == 0);
  using Limits = std::numeric_limits<double>;
  for (const double wrong : {-1.0, Limits::quiet_NaN(), Limits::infinity()}) {
    progress.overhead = {Revision{4}, 9, wrong, 16};
    progress.step_ms = wrong;
    CHECK(round_trip(progress).overhead.steps == 0);
    CHECK(round_trip(progress).step_ms == 0);
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

TEST_CASE("what ranks tell of their replicas is refused if it is out of range") {
  const auto refused = [](const Message& message) { return !decode_frame(frame_of(message)); };
  CHECK(refused(ReplicaDigests{9, 1, {}}));
  CHECK(refused(ReplicaDigests{9, 2, {{Revision{4}, 5, 3, "short"}}}));
  CHECK(refused(ReplicaRequest{Revision{4}, 5, 3, 64}));
  CHECK(refused(ReplicaValues{{Revision{4}, 5, 99, 0}, 9, 1e-6, {}}));
  CHECK_FALSE(decode_frame(frame_with(31, "\xff\xff")));
  CHECK_FALSE(decode_frame(frame_with(33, "")));
}

TEST_CASE("a command and an outcome of a later release are decoded as unknown and as failed") {
  Command later;
  later.verb = static_cast<CommandVerb>(static_cast<int>(CommandVerb::alerts) + 1);
  const Command read = frame_round_trip(later);
  CHECK(read.verb == CommandVerb::unknown);
  CommandReply reply;
  reply.outcome = static_cast<CommandOutcome>(99);
  CHECK(frame_round_trip(AddressedReply{"id", reply}).reply.outcome == CommandOutcome::failed);
  reply.outcome = CommandOutcome::no_lead;
  CHECK(frame_round_trip(AddressedReply{"id", reply}).reply.outcome == CommandOutcome::no_lead);
}

}  // namespace
}  // namespace gradmon
