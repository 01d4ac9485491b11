// SPDX-License-Identifier: Apache-2.0
// The agreement of thousands of ranks. Rank 0 and its lead hub are real. Three threads play the other hubs:
// each with the real Relay and its connection with keys, and with real Members and StepGates in place of
// ranks. (tests/control/simulator has no connections: it looks for faults.)
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "control/agree/member.h"
#include "control/host/child_process.h"
#include "control/hub/relay.h"
#include "control/hub/transport/command_client.h"
#include "control/hub/transport/curve_keys.h"
#include "control/hub/transport/rendezvous.h"
#include "control/wire/messages.h"
#include "tests/benchmarks/measure.h"
#include "tests/control/link/agent_job.h"

namespace gradmon {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kRanksPerHub = 8;

// The hubs that one thread plays.
struct Part {
  std::string endpoint;  // of the lead hub
  std::string keys;      // directory
  std::string launch_id;
  int world_size = 0;
  int first_rank = 0;
  int hubs = 0;
};

// All members of a thread know a verdict.
struct Report {
  Clock::time_point heard;     // by the last member
  std::uint64_t messages = 0;  // sent and received so far by all hubs, without Progress and ProgressAck
};

// A rank as its hub sees it: the real Member and StepGate, and a trainer that jumps to the
// effective step of a plan as soon as it hears the verdict. One thread.
class SimulatedMember {
 public:
  using Say = std::function<void(Bundle)>;

  SimulatedMember(const Part& part, Rank rank, Say say)
      : rank_(rank),
        say_(std::move(say)),
        gate_(Step{0}),
        member_(identity_of(part, rank), gate_, [](const Plan&) { return 1; }) {
    gate_.try_begin(step_);
    perform(member_.start(boot_now()));
  }

  // Sends Hello, like an agent that has just connected to its hub.
  void connect() { perform(member_.connected(boot_now())); }
  void tick() { perform(member_.tick(boot_now())); }

  void send_progress() {
    if (!member_.joined()) return;
    const Ticks now = boot_now();
    Progress progress = member_.progress();
    progress.step_ms = 1;
    say(member_.report(std::move(progress), now));
  }

  // Handles a bundle. Returns the revision whose verdict is new to this member; nullopt: none.
  std::optional<Revision> hear(const Bundle& bundle) {
    const auto own = std::find_if(bundle.to.begin(), bundle.to.end(),
                                  [&](const auto& to) { return to.first == rank_.value; });
    if (own == bundle.to.end()) return {};
    const Envelope envelope{bundle.epoch, rank_, own->second, bundle.message};
    perform(member_.on_envelope(envelope, boot_now()));
    const auto* decided = std::get_if<Decided>(&envelope.message);
    const auto* prepare = std::get_if<Prepare>(&envelope.message);
    const KnownDecisions* last = decided != nullptr   ? &decided->last
                                 : prepare != nullptr ? &prepare->last
                                                      : nullptr;
    if (last == nullptr || !last->commit || last->commit->revision <= heard_) return {};
    heard_ = last->commit->revision;
    step_ = last->commit->effective;
    if (!gate_.try_begin(step_)) gate_.begin(step_, boot_now());
    perform(member_.applied());
    return heard_;
  }

 private:
  static Member::Identity identity_of(const Part& part, Rank rank) {
    Member::Identity identity;
    identity.rank = rank;
    identity.hello.launch_id = part.launch_id;
    identity.hello.world_size = part.world_size;
    identity.hello.host = host_name();
    identity.hello.pid = getpid();
    identity.hello.process_id = random_hex(16);
    return identity;
  }

  void perform(MemberActions actions) {
    for (Message& message : actions.send) say(std::move(message));
  }
  void say(Message message) { say_(to_bundle(member_.to_coordinator(std::move(message)))); }

  const Rank rank_;
  const Say say_;
  StepGate gate_;
  Member member_;
  Step step_;
  Revision heard_;
};

// The hub of one host and its ranks: the real Relay, with its real connection to the lead
// hub, and members in place of ranks. One thread.
class SimulatedHub final : private LocalPeers {
 public:
  static constexpr milliseconds kTick{100};

  using OnVerdict = std::function<void(Revision)>;  // called for each member that hears the verdict

  SimulatedHub(const Part& part, int number, OnVerdict on_verdict)
      : on_verdict_(std::move(on_verdict)),
        relay_(introduction_of(part), {}, std::make_shared<Mailbox>(), *this) {
    const int first = part.first_rank + number * kRanksPerHub;
    for (int i = 0; i < kRanksPerHub; ++i)
      members_.push_back(std::make_unique<SimulatedMember>(
          part, Rank{first + i}, [this](Bundle bundle) { say(std::move(bundle)); }));
  }

  void add_to(std::vector<pollfd>& polled) const { relay_.add_to(polled); }
  void turn() {
    relay_.turn(Clock::now());
    spoke_this_turn_ = false;
  }
  // True if messages must be sent before the next tick.
  bool has_to_say() const { return relay_.longest_wait(kTick) < kTick; }
  void connect() {
    for (const auto& member : members_) member->connect();
  }
  // Call it every kTick; each member sends Progress in one of ten ticks. The ranks of a host report in the
  // same tick, as agents do; hosts report in different ticks.
  void tick(int turn) {
    for (const auto& member : members_) {
      member->tick();
      if (turn % 10 == 0) member->send_progress();
    }
  }
  // In both directions on the connection to the lead hub. A message for several ranks counts once.
  std::uint64_t messages() const { return messages_; }

 private:
  static Introduction introduction_of(const Part& part) {
    Introduction said;
    said.launch_id = part.launch_id;
    said.rank = Rank{part.first_rank};
    said.world_size = part.world_size;
    said.endpoint = part.endpoint;
    said.keys = part.keys;
    return said;
  }

  static bool is_counted(const Message& message) {
    return !std::holds_alternative<Progress>(message) && !std::holds_alternative<ProgressAck>(message);
  }

  void say(Bundle bundle) {
    // All bundles of one turn go out as one message.
    if (is_counted(bundle.message) && !std::exchange(spoke_this_turn_, true)) messages_ += 1;
    relay_.pass_on(std::move(bundle));
  }

  void answer(const std::string&, const std::string&) override {}
  void tell_rank0(LogLevel, const std::string&) override {}
  void ask_store(const StoreNotes&) override {}
  bool has_rank0() const override { return false; }
  std::size_t ranks() const override { return kRanksPerHub; }
  void deliver(const Bundle& bundle) override {
    messages_ += is_counted(bundle.message) ? 1 : 0;
    for (const auto& member : members_) {
      if (const auto revision = member->hear(bundle)) on_verdict_(*revision);
    }
  }

  const OnVerdict on_verdict_;
  bool spoke_this_turn_ = false;
  std::uint64_t messages_ = 0;
  Relay relay_;
  std::vector<std::unique_ptr<SimulatedMember>> members_;
};

// Many hubs on a thread of their own.
class SimulatedHubs {
 public:
  explicit SimulatedHubs(const Part& part) : thread_([this, part] { run(part); }) {}
  ~SimulatedHubs() {
    stopping_ = true;
    thread_.join();
  }
  SimulatedHubs(const SimulatedHubs&) = delete;
  SimulatedHubs& operator=(const SimulatedHubs&) = delete;

  // Another thread: the next report; throws std::runtime_error if there is none within 60 s.
  Report next() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::seconds(60), [&] { return !reports_.empty(); }))
      throw std::runtime_error("not all simulated ranks received the verdict within a minute");
    const Report report = reports_.front();
    reports_.pop_front();
    return report;
  }

 private:
  void run(const Part& part) try {
    for (int i = 0; i < part.hubs; ++i)
      hubs_.push_back(std::make_unique<SimulatedHub>(part, i, [this](Revision revision) { note(revision); }));
    // The lead hub can admit this many hubs at a time without a growing queue.
    constexpr int kConnectInATurn = 8;
    auto ticked = Clock::now();
    for (int turn = 0; !stopping_;) {
      serve();
      const auto now = Clock::now();
      if (now - ticked < SimulatedHub::kTick) continue;
      ticked = now;
      for (int i = 0; i < kConnectInATurn && connected_ < hubs_.size(); ++i) hubs_[connected_++]->connect();
      for (std::size_t i = 0; i < connected_; ++i) hubs_[i]->tick(turn + static_cast<int>(i));
      for (const auto& hub : hubs_) hub->turn();
      ++turn;
    }
  } catch (const std::exception& error) {
    std::cerr << "gradmon-bench: simulated hubs: " << error.what() << std::endl;  // next() fails
  }

  void serve() {
    // Polling all hubs is expensive, so each poll handles the messages of several milliseconds.
    std::this_thread::sleep_for(milliseconds(8));
    polled_.clear();
    ends_.clear();
    for (const auto& hub : hubs_) {
      hub->add_to(polled_);
      ends_.push_back(polled_.size());
    }
    ::poll(polled_.data(), polled_.size(), 5);
    std::size_t begin = 0;
    for (std::size_t i = 0; i < hubs_.size(); begin = ends_[i++]) {
      const bool ready = std::any_of(polled_.begin() + static_cast<std::ptrdiff_t>(begin),
                                     polled_.begin() + static_cast<std::ptrdiff_t>(ends_[i]),
                                     [](const pollfd& one) { return one.revents != 0; });
      if (ready || hubs_[i]->has_to_say()) hubs_[i]->turn();
    }
  }

  // A member has heard of the revision; reports when all have.
  void note(Revision revision) {
    if (++heard_[revision] != hubs_.size() * kRanksPerHub) return;
    Report report{Clock::now()};
    for (const auto& hub : hubs_) report.messages += hub->messages();
    const std::lock_guard lock(mutex_);
    reports_.push_back(report);
    changed_.notify_all();
  }

  // Its own thread only.
  std::map<Revision, std::size_t> heard_;  // members
  std::vector<std::unique_ptr<SimulatedHub>> hubs_;
  std::size_t connected_ = 0;  // the first of hubs_, whose members have sent Hello
  std::vector<pollfd> polled_;
  std::vector<std::size_t> ends_;  // of each hub's part of polled_

  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Report> reports_;  // guarded by mutex_
  // Keep last: the thread uses the other members.
  std::thread thread_;
};

constexpr int kThreads = 3;

// Rank 0 is real and alone on its host; threads simulate the other ranks. All fences are far away (256 steps
// of 40 ms), so that no rank waits at one.
class BigJob {
 public:
  explicit BigJob(int hubs) {
    AgentOptions options;
    options.rank = Rank{0};
    options.world_size = 1 + hubs * kRanksPerHub;
    options.endpoint = "tcp://127.0.0.1:*";
    options.keys = scratch_ / "keys";
    options = options_in(scratch_.path(), options);
    write_text(options.lead.config_path,
               R"({"dynamic_on": false, "collect_times": 1000000, "lookahead_steps": 256})");
    if (auto made = make_key_directory(options.keys); !made) throw std::runtime_error(made.error());
    const auto directory = make_job_directory(options.launch_id, job_bases(options.environment));
    if (!directory) throw std::runtime_error(directory.error());
    socket_ = directory->socket();
    rank0_ = std::make_unique<AgentRank>(options, milliseconds(40));
    const auto address_of_lead = [&] {
      const auto entry = find_entry(options.output_dir, options.launch_id);
      return entry ? entry->address : std::string();
    };
    if (!eventually([&] { return !address_of_lead().empty(); }, std::chrono::seconds(20)))
      throw std::runtime_error("rank 0 did not come up");
    const int threads = std::min(hubs, kThreads);
    for (int i = 0; i < threads; ++i) {
      const int first = hubs * i / threads;
      const int end = hubs * (i + 1) / threads;
      parts_.push_back(
          std::make_unique<SimulatedHubs>(Part{address_of_lead(), options.keys, options.launch_id,
                                               options.world_size, 1 + first * kRanksPerHub, end - first}));
    }
    change();
  }
  ~BigJob() {
    parts_.clear();
    rank0_.reset();
    wait_for_end_of_hub(socket_);
  }
  BigJob(const BigJob&) = delete;
  BigJob& operator=(const BigJob&) = delete;

  struct Agreement {
    double milliseconds = 0;
    double messages = 0;
  };
  // Sends a command, and waits until every member has heard the verdict.
  Agreement change() {
    on_ = !on_;
    Command command;
    command.verb = on_ ? CommandVerb::on : CommandVerb::off;
    command.request_id = random_hex(8);
    const auto begin = Clock::now();
    const auto reply = CommandClient("ipc://" + socket_.string()).ask(command, std::chrono::seconds(60));
    if (!reply) throw std::runtime_error(reply.error());
    if (reply->outcome != CommandOutcome::done) throw std::runtime_error(reply->message);
    auto heard = begin;
    std::uint64_t messages = 0;
    for (const auto& part : parts_) {
      const Report report = part->next();
      heard = std::max(heard, report.heard);
      messages += report.messages;
    }
    return {std::chrono::duration<double, std::milli>(heard - begin).count(),
            static_cast<double>(messages - std::exchange(messages_, messages))};
  }

 private:
  const TemporaryDirectory scratch_;
  std::unique_ptr<AgentRank> rank0_;
  std::filesystem::path socket_;  // of the hub
  std::vector<std::unique_ptr<SimulatedHubs>> parts_;
  bool on_ = false;
  std::uint64_t messages_ = 0;
};

std::vector<Figure> measure(Effort effort) {
  const std::vector<int> sizes = pick(effort, std::vector<int>{2, 8}, std::vector<int>{2, 32, 256, 2048});
  const int changes = pick(effort, 2, 5);
  rlimit descriptors{};  // a connection for each hub
  if (getrlimit(RLIMIT_NOFILE, &descriptors) == 0) {
    descriptors.rlim_cur = descriptors.rlim_max;
    setrlimit(RLIMIT_NOFILE, &descriptors);
  }
  Figure figure{
      "hubs_simulated", 0, "", at_most(1000),
      "from a command until all ranks know the verdict; the lead hub and rank 0 are real, the other "
      "hubs, " +
          std::to_string(kRanksPerHub) + " ranks each, share " + std::to_string(kThreads) +
          " threads, each with its connection with keys; minimum, median and maximum of " +
          std::to_string(changes)};
  for (const int hubs : sizes) {
    const std::string size =
        std::to_string(hubs) + " hubs, " + std::to_string(hubs * kRanksPerHub) + " ranks";
    try {
      BigJob job(hubs);
      std::vector<double> times, messages;
      for (int i = 0; i < changes; ++i) {
        const auto agreement = job.change();
        times.push_back(agreement.milliseconds);
        messages.push_back(agreement.messages / hubs);
      }
      figure.how +=
          "; " + size + ": " + range_text(times) + " ms, " + text_of(median_of(messages)) + " messages a hub";
      figure.value = median_of(times);
      figure.unit = "ms for " + size;
    } catch (const std::runtime_error& error) {
      figure.how += "; " + size + ": " + error.what();
      figure.met = false;
      break;
    }
  }
  if (figure.unit.empty()) throw std::runtime_error(figure.how);
  return {figure};
}

}  // namespace

std::vector<Bench> simulated_hubs() { return {{{"hubs_simulated"}, measure}}; }

}  // namespace gradmon
