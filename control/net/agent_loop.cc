// SPDX-License-Identifier: Apache-2.0
#include "control/net/agent_loop.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "control/log.h"
#include "control/net/history_file.h"
#include "control/net/messages.h"
#include "control/net/open_bus.h"
#include "control/net/permission.h"
#include "control/net/process_identity.h"
#include "control/net/socket_directory.h"

namespace gradmon {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kBusyTurn{10};
constexpr milliseconds kIdleTurn{100};
constexpr milliseconds kLeaveWithin{1000};
constexpr milliseconds kDrainWithin{300};

Member::Identity identity_of(const AgentOptions& options, const std::string& process_id) {
  Member::Identity identity;
  identity.rank = options.rank;
  identity.process_id = process_id;
  identity.holds_start = options.mode == Mode::dynamic;
  identity.hello.launcher_id = options.launcher_id;
  identity.hello.world_size = options.world_size;
  identity.hello.host = host_name();
  identity.hello.pid = getpid();
  identity.hello.process_start = process_start_of(getpid());
  identity.hello.process_id = process_id;
  identity.hello.start_iteration = options.start_iteration;
  return identity;
}

// Only rank 0 knows then which port it got: the others find it as they would a socket.
bool knows_endpoint(const AgentOptions& options) {
  if (!options.endpoint) return false;
  const std::string port = options.endpoint->substr(options.endpoint->rfind(':') + 1);
  return !is_tcp(*options.endpoint) || (port != "*" && port != "0");
}

}  // namespace

void AgentView::show(Status status) {
  const std::lock_guard lock(mutex_);
  status_ = std::move(status);
}

void AgentView::show(JobIdentity job) {
  const std::lock_guard lock(mutex_);
  job_ = std::move(job);
}

Status AgentView::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

std::optional<JobIdentity> AgentView::job() const {
  const std::lock_guard lock(mutex_);
  return job_;
}

AgentLoop::AgentLoop(AgentOptions options, StepGate& gate, AgentCalls calls, std::shared_ptr<Mailbox> mailbox,
                     AgentView& view)
    : options_(std::move(options)),
      gate_(gate),
      calls_(std::move(calls)),
      mailbox_(std::move(mailbox)),
      view_(view),
      process_id_(random_hex(16)),
      member_(identity_of(options_, process_id_), gate_, calls_.can_carry_out, calls_.list_targets),
      last_step_(options_.start_iteration),
      homes_({options_.output_dir, options_.world_size, process_id_, options_.open_store}, disk_, mailbox_) {
  tl::expected<std::unique_ptr<Bus>, std::string> bus;
  if (options_.rank.value != 0) {
    bus = asking_bus(options_);
  } else {
    std::string endpoint = options_.endpoint.value_or("");
    if (endpoint.empty()) {
      if (auto directory = make_socket_directory())
        socket_endpoint_ = "ipc://" + (*directory / "control").string();
      endpoint = socket_endpoint_;
    }
    bus = listening_bus(options_, endpoint);
  }
  if (bus) {
    bus_ = std::move(*bus);
  } else {
    network_trouble_ = bus.error();
    log_error(network_trouble_);
  }
}

AgentLoop::~AgentLoop() = default;

void AgentLoop::live() noexcept {
  try {
    run();
  } catch (const std::exception& error) {
    log_error(std::string("the agent gives up: ") + error.what());
    gate_.abandon();
  }
}

void AgentLoop::run() {
  last_turn_ = last_progress_ = last_measured_ = Clock::now();
  if (options_.rank.value == 0) {
    open_rank0();
  } else if (bus_ && knows_endpoint(options_)) {
    if (auto connected = bus_->connect(*options_.endpoint); !connected) give_up(connected.error());
  }
  while (!may_go()) {
    const bool busy = member_.busy() || leave_by_ || (rank0_ && rank0_->busy());
    const milliseconds wait = busy ? kBusyTurn : kIdleTurn;
    if (bus_) {
      take_messages(wait);
    } else {
      mailbox_->wait(wait);
    }
    take_turn();
  }
  close();
}

// A flood from outside must not keep the agent from its own turn.
void AgentLoop::take_messages(milliseconds at_most) {
  constexpr int most_in_a_turn = 200;
  auto incoming = bus_->poll(at_most, mailbox_->fd());
  for (int i = 0; incoming && i < most_in_a_turn; ++i) {
    on_bytes(*incoming);
    incoming = bus_->poll(milliseconds{0}, -1);
  }
  if (incoming) on_bytes(*incoming);
  if (!bus_->refusal().empty() && network_trouble_.empty()) give_up(bus_->refusal());
  if (!bus_->hint().empty() && !std::exchange(hinted_, true))
    log_warn("rank " + std::to_string(options_.rank.value) + " asks the job again: " + bus_->hint());
}

// Not let in: training goes on, and nothing is collected here.
void AgentLoop::give_up(const std::string& why) {
  network_trouble_ = "rank " + std::to_string(options_.rank.value) + " cannot join the job: " + why;
  log_error(network_trouble_);
  if (started_) member_.give_up(network_trouble_);
}

void AgentLoop::take_turn() {
  for (const Mailbox::Note& note : mailbox_->take()) note();
  const auto now = Clock::now();
  const auto elapsed = std::chrono::floor<milliseconds>(now - last_turn_);
  last_turn_ += elapsed;
  if (started_) {
    tell_applied();
    perform(member_.tick(elapsed));
    report_progress(now);
    ask_rank0(now);
  }
  if (rank0_) rank0_->tick(elapsed);
  while (!inbox_.empty() && rank0_) {
    const Letter letter = std::move(inbox_.front());
    inbox_.pop_front();
    rank0_->on_letter(letter);
  }
  if (options_.rank.value == 0) {
    homes_.keep_announced(now);
  } else {
    look_for_rank0();
  }
}

void AgentLoop::open_rank0() {
  job_ = {random_hex(16), random_hex(4), wall_now()};
  view_.show(job_);
  const JobEntry entry{job_.epoch,
                       options_.launcher_id,
                       bus_ ? bus_->endpoint() : "",
                       bus_ ? bus_->state_endpoint() : "",
                       host_name(),
                       getpid(),
                       process_start_of(getpid()),
                       job_.started,
                       network_trouble_};
  const auto create =
      options_.mode == Mode::dynamic ? JobHomes::Create::registers : JobHomes::Create::nothing;
  homes_.announce(entry, create, [this] {
    Rank0Desk::Door door{disk_,
                         homes_,
                         mailbox_,
                         [this](const Letter& letter) { send_to_rank(letter); },
                         [this](const std::string& peer, const Command& command, const CommandReply& reply) {
                           answer(peer, command, reply);
                         },
                         [this] { return own_status(calls_.report()); },
                         [this] {
                           const auto in_force = gate_.in_force();
                           return in_force ? in_force->plan->config_text : std::string();
                         }};
    rank0_ = std::make_unique<Rank0Desk>(options_, job_, process_id_, std::move(door));
    rank0_->open();
  });
}

void AgentLoop::start() {
  started_ = true;
  if (!network_trouble_.empty() && options_.world_size > 1) member_.give_up(network_trouble_);
  perform(member_.say_hello());
}

// The one that was found may be dead, on a host that cannot tell: until it has
// answered there may be a newer one.
void AgentLoop::look_for_rank0() {
  const bool wanted = bus_ && (tried_epoch_.empty() || started_);
  if (!wanted || member_.joined() || leave_by_ || knows_endpoint(options_)) return;
  homes_.find_rank0(options_.launcher_id, Clock::now(), [this](const JobEntry& job) { on_rank0_found(job); });
}

void AgentLoop::on_rank0_found(const JobEntry& job) {
  if (member_.joined() || job.epoch == tried_epoch_) return;
  const bool first = tried_epoch_.empty();
  tried_epoch_ = job.epoch;
  if (!first) {
    bus_.reset();
    hinted_ = false;
    network_trouble_.clear();
    auto bus = asking_bus(options_);
    if (!bus) return give_up(bus.error());
    bus_ = std::move(*bus);
  }
  if (std::string why = out_of_reach(job); !why.empty()) return give_up(why);
  if (auto connected = bus_->connect(job.endpoint); !connected) return give_up(connected.error());
  if (started_) perform(member_.say_hello());
}

void AgentLoop::on_bytes(const Bus::Incoming& incoming) {
  if (!incoming.whole) return drop("a message of several frames");
  auto frame = decode_frame(incoming.bytes);
  if (!frame) return drop(frame.error());
  if (auto* command = std::get_if<Command>(&*frame)) return on_command(incoming, std::move(*command));
  const auto* letter = std::get_if<Letter>(&*frame);
  if (const auto* answer = std::get_if<AddressedReply>(&*frame);
      answer != nullptr && options_.rank.value != 0)
    return own_commands_.answered(answer->request_id, answer->reply);
  if (letter == nullptr) return drop("an answer to nobody here");
  if (options_.rank.value != 0) return to_member(*letter);
  if (!rank0_) return;
  if (std::string why = letter_objection(incoming); !why.empty()) return drop(why);
  // Rank 0's own letters do not come by the network.
  if (letter->rank.value <= 0 || letter->rank.value >= options_.world_size)
    return drop("a letter of no other rank of this job");
  if (const auto* hello = std::get_if<Hello>(&letter->message)) {
    constexpr std::size_t most_strangers = 100'000;
    if (hello->process_id.size() != process_id_.size()) return;
    if (hello_peers_.size() >= most_strangers) hello_peers_.clear();
    hello_peers_[hello->process_id] = incoming.peer;
  } else if (letter->epoch == job_.epoch) {
    // After a connection was lost the same process comes back as another peer.
    const auto known = peers_.find({letter->rank.value, letter->incarnation});
    if (known != peers_.end()) known->second = incoming.peer;
  }
  rank0_->on_letter(*letter);
}

void AgentLoop::drop(const std::string& why) {
  if (const auto line = dropped_.count(why, Clock::now())) log_warn(*line);
}

void AgentLoop::on_command(const Bus::Incoming& incoming, Command command) {
  if (!rank0_) return;
  if (std::string why = command_objection(incoming, command.verb); !why.empty()) {
    CommandReply refused;
    refused.outcome = CommandOutcome::not_allowed;
    refused.message = std::move(why);
    return answer(incoming.peer, command, refused);
  }
  // Who it was is what the key says; the rest the client says of itself.
  if (!incoming.client.empty()) command.by = incoming.client + ", " + command.by;
  rank0_->on_command(incoming.peer, command);
}

void AgentLoop::answer(const std::string& peer, const Command& command, const CommandReply& reply) {
  if (peer.empty()) return own_commands_.answered(command.request_id, reply);
  if (bus_) bus_->send(peer, encode(Frame(AddressedReply{command.request_id, reply})));
}

void AgentLoop::ask(Command command) {
  command.by = "the program of rank " + std::to_string(options_.rank.value) + ", " + host_name() + " pid " +
               std::to_string(getpid());
  own_commands_.add(std::move(command));
}

void AgentLoop::ask_rank0(Clock::time_point now) {
  if (own_commands_.empty() || !member_.joined()) return;
  for (const Command& command : own_commands_.due(now)) {
    if (rank0_) {
      rank0_->on_command("", command);
    } else if (bus_) {
      bus_->send("", encode(Frame(command)));
    }
  }
}

void AgentLoop::send_to_rank(const Letter& letter) {
  if (letter.rank.value == 0) return to_member(letter);
  if (!bus_) return;
  const auto seat = std::make_pair(letter.rank.value, letter.incarnation);
  if (const auto* welcome = std::get_if<Welcome>(&letter.message)) {
    const auto peer = hello_peers_.find(welcome->process_id);
    if (peer == hello_peers_.end()) return;
    if (welcome->refused.empty()) peers_[seat] = peer->second;
    bus_->send(peer->second, encode(Frame(letter)));
    return;
  }
  const auto peer = peers_.find(seat);
  if (peer != peers_.end()) bus_->send(peer->second, encode(Frame(letter)));
}

void AgentLoop::to_member(const Letter& letter) {
  if (letter.rank != options_.rank) return;
  if (const auto* welcome = std::get_if<Welcome>(&letter.message)) {
    const bool ours = welcome->process_id == process_id_ && !member_.joined();
    if (!ours) return;
    if (welcome->refused.empty()) {
      incarnation_ = letter.incarnation;
      if (options_.rank.value != 0) {
        job_ = {letter.epoch, welcome->run_id, welcome->started};
        homes_.enter(job_.epoch);
        view_.show(job_);
      }
    }
  } else if (letter.epoch != job_.epoch || letter.incarnation != incarnation_) {
    return;
  }
  perform(member_.on_message(letter.message));
}

void AgentLoop::to_coordinator(Message message) {
  const bool hello = std::holds_alternative<Hello>(message);
  Letter letter{hello ? "" : job_.epoch, options_.rank, hello ? 0 : incarnation_, std::move(message)};
  if (options_.rank.value == 0) {
    inbox_.push_back(std::move(letter));
  } else if (bus_) {
    bus_->send("", encode(Frame(std::move(letter))));
  }
}

void AgentLoop::perform(MemberActions actions) {
  for (const std::string& line : actions.warnings) {
    log_warn("rank " + std::to_string(options_.rank.value) + ": " + line);
  }
  for (Message& message : actions.send) to_coordinator(std::move(message));
  if (actions.write) write_verdict(*actions.write);
  if (actions.prove) prove(Home::directory, *actions.prove);
  if (actions.prove_in_store) prove(Home::store, *actions.prove_in_store);
  homes_.settle(member_.home());
}

void AgentLoop::write_verdict(const Verdict& verdict) {
  homes_.decide(member_.home(), verdict, [this](const auto& held) { perform(member_.on_register(held)); });
}

void AgentLoop::prove(Home home, const std::string& nonce) {
  if (options_.mode == Mode::static_once) return perform(member_.on_proof({}, home));
  homes_.prove(home, nonce, [this, home](const auto& proof) {
    perform(member_.on_proof(proof, home));
    report_soon();
  });
}

void AgentLoop::rows_on_disk(Revision revision) {
  perform(member_.finished(revision));
  report_soon();
}

void AgentLoop::leave(Step last) {
  leave_by_ = Clock::now() + kLeaveWithin;
  if (started_ && member_.joined()) {
    tell_applied();
    perform(member_.leave(last));
  } else {
    leave_by_ = Clock::now();
  }
}

bool AgentLoop::may_go() const {
  if (!leave_by_) return false;
  if (Clock::now() >= *leave_by_) return true;
  return member_.left_heard() && inbox_.empty() && (!rank0_ || rank0_->may_go());
}

void AgentLoop::close() {
  if (options_.rank.value != 0) return;
  if (rank0_) rank0_->close();
  homes_.withdraw_announcement();
  disk_.drain(kDrainWithin);
  bus_.reset();
  if (!socket_endpoint_.empty()) remove_socket_directory(socket_endpoint_);
}

void AgentLoop::tell_applied() {
  write_notes();
  MemberActions applied = member_.applied();
  if (applied.send.empty()) return;
  note_switches(applied);
  perform(std::move(applied));
  report_soon();
}

// What has just changed is worth more than a second's wait.
void AgentLoop::report_soon() {
  last_progress_ = {};
  last_show_ = {};
}

// Where a plan is on its directory is about to be named: training has passed the
// boundary and may not have come to that yet. Where none is, there is nothing to note.
void AgentLoop::note_switches(const MemberActions& actions) {
  for (const Message& message : actions.send) {
    const auto* applied = std::get_if<Applied>(&message);
    if (applied == nullptr) continue;
    const auto in_force = gate_.in_force();
    const bool on = in_force && in_force->plan->on;
    if (!on && calls_.run_directory().empty()) continue;
    notes_.push_back({job_.epoch, options_.rank, applied->revision, applied->step, on, wall_now()});
  }
  write_notes();
}

void AgentLoop::write_notes() {
  if (notes_.empty()) return;
  const auto directory = calls_.run_directory();
  if (directory.empty()) return;
  for (SwitchNote& note : std::exchange(notes_, {})) {
    disk_.post([file = directory / "switches.jsonl", note = std::move(note)] {
      if (auto saved = append_switch(file, note); !saved) log_debug("switches: " + saved.error());
    });
  }
}

}  // namespace gradmon
