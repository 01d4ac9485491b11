// SPDX-License-Identifier: Apache-2.0
// A JobService with simulated ranks, which need no thread and no socket. Only the files and
// the disk threads are real.
#pragma once

#include <algorithm>
#include <future>

#include "control/agree/member.h"
#include "control/host/child_process.h"
#include "control/hub/job_service.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace gradmon {

constexpr Ticks kTurn{10};

inline const std::string kOff = R"({"dynamic_on": false})";
inline const std::string kOn = R"({"dynamic_on": true})";

// A rank whose trainer takes one step per turn.
class SimulatedRank {
 public:
  SimulatedRank(int rank, int world, const std::string& launch, std::function<void(const Envelope&)> send)
      : rank_{rank},
        send_(std::move(send)),
        member_(identity(rank, world, launch), gate_,
                [this](const Plan&) -> tl::expected<std::int64_t, std::string> { return matches; }) {}

  std::vector<std::int64_t> collected;
  std::map<std::int64_t, std::string> config_of;  // of each collected step, the config in force
  bool trainer_hangs = false;                     // the trainer does not end its current step
  bool ended = false;                             // its process is gone
  std::int64_t matches = 1;                       // targets of any plan

  void start(Ticks now) {
    gate_.hold(Step{1}, Ticks{2'000});
    perform(member_.connected(now));
    perform(member_.start(now));
  }
  void turn(Ticks now) {
    if (ended) return;
    perform(member_.tick(now));
    if (!trainer_hangs) step(now);
    perform(member_.applied());
    if (now - last_progress_ < Ticks{200} || !member_.joined()) return;
    last_progress_ = now;
    Progress progress = member_.progress();
    progress.alerts = raised_;
    perform(member_.report(std::move(progress), now));
  }
  // Reports the alerts of a step, as an agent does.
  void raise(const AlertReport& report) {
    raised_ += report.alerts.size() + report.left_out;
    perform(Message(report));
  }
  void say(Message message) { perform(std::move(message)); }
  void hear(const Envelope& envelope, Ticks now) { perform(member_.on_envelope(envelope, now)); }

 private:
  static Member::Identity identity(int rank, int world, const std::string& launch) {
    Member::Identity made;
    made.rank = Rank{rank};
    made.hello.launch_id = launch;
    made.hello.world_size = world;
    made.hello.process_id = "process " + std::to_string(rank);
    return made;
  }
  void step(Ticks now) {
    const Step next{gate_.current().value + (waiting_ ? 0 : 1)};
    if (!waiting_ && gate_.try_begin(next)) return;
    const Opening opening = gate_.begin(next, now);
    waiting_ = opening.wait;
    if (waiting_) return;
    if (opening.swap) revision_ = opening.swap->revision;
    if (opening.swap) config_ = opening.swap->plan->config_text;
    if (opening.collect) collected.push_back(next.value);
    if (opening.collect) config_of[next.value] = config_;
    if (opening.ended) perform(member_.finished(revision_));
  }
  void perform(MemberActions actions) {
    for (Message& message : actions.send) send_(member_.to_coordinator(std::move(message)));
  }
  void perform(Message message) { send_(member_.to_coordinator(std::move(message))); }

  const Rank rank_;
  const std::function<void(const Envelope&)> send_;
  StepGate gate_{Step{0}};
  Member member_;
  bool waiting_ = false;
  Revision revision_;
  std::string config_;
  Ticks last_progress_{};
  std::uint64_t raised_ = 0;
};

struct Answer {
  std::string peer;
  std::string request_id;
  CommandReply reply;
};

struct ServedJob : private JobChannels {
  const TemporaryDirectory directory;
  std::filesystem::path path = directory / "config.json";
  std::filesystem::path output = directory / "out";
  const std::shared_ptr<Mailbox> mailbox = std::make_shared<Mailbox>();
  NullDecisionLog log;
  DiskThread config_disk, run_disk;
  std::vector<Answer> answers;
  std::vector<std::string> log_lines;
  std::vector<Envelope> to_ranks;
  std::vector<Alert> published;
  std::vector<std::unique_ptr<SimulatedRank>> ranks;
  bool started = false;
  std::unique_ptr<JobService> service;
  Ticks now{1'000};

  // `beside`: another job, whose config and output directory this job shares.
  explicit ServedJob(const std::string& config, int world = 1, int present = 1, bool dynamic = true,
                     const ServedJob* beside = nullptr) {
    if (beside != nullptr) path = beside->path;
    if (beside != nullptr) output = beside->output;
    if (beside == nullptr) write_text(path, config);
    HubJob job;
    job.launch_id = beside == nullptr ? "launch" : "second";
    job.world_size = world;
    job.output_dir = output.string();
    job.lead.config_path = path.string();
    job.lead.dynamic = dynamic;
    job.lead.static_text = config;
    job.epoch = "epoch";
    job.run_id = "0badcafe";
    service = std::make_unique<JobService>(job, JobResources{config_disk, run_disk, log, mailbox, *this});
    for (int rank = 0; rank < present; ++rank) {
      ranks.push_back(std::make_unique<SimulatedRank>(
          rank, world, job.launch_id, [this](const Envelope& envelope) { service->on_message(envelope); }));
    }
    service->open({});
    // Fake time runs faster than the disk, so the ranks start when the file has been read.
    REQUIRE(until([&] { return status().reason != "starting"; }));
    for (auto& rank : ranks) rank->start(now);
    started = true;
  }

  void send(Outgoing outgoing) override {
    for (const auto& [rank, incarnation] : outgoing.to)
      to_ranks.push_back({"epoch", Rank{rank}, incarnation, outgoing.message});
  }
  void reply(const std::string& peer, const std::string& request_id, CommandReply reply) override {
    answers.push_back({peer, request_id, std::move(reply)});
  }
  void tell(LogLevel, const std::string& text) override { log_lines.push_back(text); }
  void publish(const std::vector<Alert>& alerts) override {
    published.insert(published.end(), alerts.begin(), alerts.end());
  }

  void turn() {
    // Fake time runs faster than the disk.
    if (blocked_disks == 0) config_disk.drain(std::chrono::seconds{20});
    mailbox->wait(std::chrono::milliseconds{1});
    for (const auto& note : mailbox->take()) note();
    now += kTurn;
    for (const Envelope& envelope : std::exchange(to_ranks, {})) {
      const auto rank = static_cast<std::size_t>(envelope.rank.value);
      if (rank < ranks.size()) ranks[rank]->hear(envelope, now);
    }
    for (auto& rank : ranks) {
      if (started) rank->turn(now);
    }
    service->tick(kTurn);
  }
  void turns(Ticks span) {
    for (const Ticks end = now + span; now < end;) turn();
  }
  // Waits for at most 20 s of real time, because the files are real.
  bool until(const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      turn();
    }
    return true;
  }
  Status status() const { return service->status(); }
  // True if a warning of the status contains the text.
  bool warns(const std::string& text) const {
    const Status known = status();
    return std::any_of(known.warnings.begin(), known.warnings.end(),
                       [&](const std::string& line) { return line.find(text) != std::string::npos; });
  }
  long times_logged(const std::string& line) const {
    return std::count(log_lines.begin(), log_lines.end(), line);
  }
  bool until_state(const std::string& state) {
    return until([&] { return status().state == state && !status().pending; });
  }

  static Command command(CommandVerb verb, std::string request_id) {
    Command made;
    made.verb = verb;
    made.request_id = std::move(request_id);
    made.by = "tester";
    return made;
  }
  static Command set(std::string request_id, decltype(Command::edits) edits,
                     CommandVerb verb = CommandVerb::set) {
    Command made = command(verb, std::move(request_id));
    made.edits = std::move(edits);
    return made;
  }
  void send_command(const Command& command) { service->on_command("client", command); }
  const CommandReply* answer_to(const std::string& id) const {
    for (const Answer& answer : answers) {
      if (answer.request_id == id) return &answer.reply;
    }
    return nullptr;
  }
  // Repeats the command until it is answered; returns the answer.
  CommandReply ask(const Command& command) {
    answers.clear();
    REQUIRE(until([&] {
      if (!answer_to(command.request_id)) send_command(command);
      return answer_to(command.request_id) != nullptr;
    }));
    return *answer_to(command.request_id);
  }
  CommandReply ask(CommandVerb verb, std::string id = random_hex(8)) {
    return ask(command(verb, std::move(id)));
  }
  // Asks for the verdict on a request until it is final; returns it.
  CommandReply settled(const std::string& id) {
    CommandReply reply;
    REQUIRE(until([&] {
      reply = ask(CommandVerb::verdict, id);
      return reply.settled && (reply.applied_by_all || reply.outcome != CommandOutcome::done);
    }));
    return reply;
  }
  std::vector<HistoryEntry> history() { return ask(CommandVerb::history).history; }

  // Blocks a disk thread until this object is destroyed.
  static inline int blocked_disks = 0;
  struct BlockedDisk {
    std::shared_ptr<std::promise<void>> release = std::make_shared<std::promise<void>>();
    explicit BlockedDisk(DiskThread& disk) {
      ++blocked_disks;
      auto begun = std::make_shared<std::promise<void>>();
      disk.post([begun, release = release] {
        begun->set_value();
        release->get_future().wait();
      });
      begun->get_future().wait();
    }
    ~BlockedDisk() {
      --blocked_disks;
      release->set_value();
    }
    BlockedDisk(const BlockedDisk&) = delete;
    BlockedDisk& operator=(const BlockedDisk&) = delete;
  };
};

}  // namespace gradmon
