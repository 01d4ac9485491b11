// SPDX-License-Identifier: Apache-2.0
#include "control/link/agent_loop.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>

#include "control/host/child_process.h"
#include "control/log.h"
#include "control/wire/messages.h"

namespace gradmon {
namespace {

using std::chrono::milliseconds;

constexpr std::chrono::seconds kSendAgain{1};
constexpr std::chrono::seconds kMaxAge{60};
constexpr std::size_t kMaxCount = 100;
constexpr milliseconds kProgressEvery{1000};
constexpr milliseconds kProgressEveryWhileOpen{500};
constexpr milliseconds kPublishEvery{100};
constexpr milliseconds kJobStatusMaxAge{3000};
constexpr std::size_t kMostWarnings = 50;
constexpr std::size_t kMostError = 1000;  // bytes
constexpr milliseconds kBusyTurn{10};
constexpr milliseconds kIdleTurn{100};
constexpr Ticks kSayStartWaits{1'000};

Member::Identity make_identity(const AgentOptions& options, const std::string& process_id) {
  Member::Identity identity;
  identity.rank = options.rank;
  identity.dynamic = options.mode == Mode::dynamic;
  identity.hello.launch_id = options.launch_id;
  identity.hello.world_size = options.world_size;
  identity.hello.host = host_name();
  identity.hello.pid = getpid();
  identity.hello.process_id = process_id;
  identity.hello.start_iteration = options.start_iteration;
  return identity;
}

}  // namespace

void PendingCommands::add(Command command, Clock::time_point now) {
  if (waiting_.size() == kMaxCount) {
    log_warn("more than " + std::to_string(kMaxCount) +
             " commands of the program are unanswered: dropped command " +
             waiting_.front().command.request_id);
    waiting_.erase(waiting_.begin());
  }
  waiting_.push_back({std::move(command), now, {}});
}

void PendingCommands::drop_expired(Clock::time_point now) {
  const auto kept = std::remove_if(waiting_.begin(), waiting_.end(), [&](const Waiting& each) {
    const bool expired = now - each.added > kMaxAge;
    if (expired)
      log_warn("no answer to the program's command " + each.command.request_id + " within " +
               std::to_string(kMaxAge.count()) + " s: dropped");
    return expired;
  });
  waiting_.erase(kept, waiting_.end());
}

std::vector<Command> PendingCommands::due(Clock::time_point now) {
  std::vector<Command> commands;
  for (Waiting& each : waiting_) {
    if (now < each.next) continue;
    each.next = now + kSendAgain;
    commands.push_back(each.command);
  }
  return commands;
}

void PendingCommands::answered(const std::string& request_id, const CommandReply& reply) {
  const auto kept = std::remove_if(waiting_.begin(), waiting_.end(), [&](const Waiting& each) {
    return each.command.request_id == request_id;
  });
  if (kept == waiting_.end()) return;
  waiting_.erase(kept, waiting_.end());
  if (reply.outcome != CommandOutcome::done) {
    log_warn("the program's command " + request_id + " was refused: " + reply.message);
  } else if (!reply.message.empty()) {
    log_info("the program's command " + request_id + ": " + reply.message);
  }
}

AgentLoop::AgentLoop(AgentOptions options, StepGate& gate, AgentCalls calls, std::shared_ptr<Mailbox> mailbox,
                     AgentView& view, std::shared_ptr<AlertOutbox> alerts,
                     std::shared_ptr<ReplicaOutbox> replicas)
    : options_(std::move(options)),
      gate_(gate),
      calls_(std::move(calls)),
      mailbox_(std::move(mailbox)),
      view_(view),
      alerts_(std::move(alerts)),
      replicas_(std::move(replicas)),
      process_id_(random_hex(16)),
      hub_settings_(HubConnection::read_settings(options_.environment)),
      launch_id_(options_.launch_id),
      search_(launch_id_.empty() && options_.ask_for_launch_id
                  ? std::make_unique<LaunchIdSearch>(options_.ask_for_launch_id, boot_now())
                  : nullptr),
      member_(make_identity(options_, process_id_), gate_, calls_.can_carry_out, calls_.list_targets),
      pace_(Step{options_.start_iteration}, Clock::now()) {}

AgentLoop::~AgentLoop() = default;

// The time until the next multiple of `turn` on the host's clock. So all ranks of a host wake together, and
// disturb training and the hub only once per turn.
milliseconds AgentLoop::until_next(milliseconds turn) {
  return std::chrono::ceil<milliseconds>(turn - Clock::now().time_since_epoch() % turn);
}

void AgentLoop::run() noexcept {
  try {
    poll_until_done();
  } catch (const std::exception& error) {
    fail(error.what());
  } catch (...) {
    fail("unknown exception");
  }
  mailbox_->close();
  hub_.reset();  // The closed connection tells the hub that this rank has ended.
}

// Allocates nothing: memory may be exhausted.
void AgentLoop::fail(const char* cause) noexcept {
  gate_.abandon();
  std::array<char, 1024> line{};
  std::snprintf(line.data(), line.size(), "the control thread has failed and collecting stops: %s", cause);
  log_error(line.data());
}

void AgentLoop::end_now() noexcept {
  ends_now_ = true;
  mailbox_->wake();
}

void AgentLoop::poll_until_done() {
  last_progress_ = Clock::now();
  while (!may_exit()) {
    const bool waits = hub_ && !hub_->connected();
    const milliseconds turn = member_.busy() || leave_by_ || waits ? kBusyTurn : kIdleTurn;
    std::array<pollfd, 2> polled{{{mailbox_->fd(), POLLIN, 0}, {-1, 0, 0}}};
    if (hub_ && hub_->connected())
      polled[1] = {hub_->fd(), static_cast<short>(POLLIN | (hub_->wants_write() ? POLLOUT : 0)), 0};
    ::poll(polled.data(), polled.size(), static_cast<int>(until_next(turn).count()));
    run_once();
  }
}

void AgentLoop::run_once() {
  for (const Mailbox::Task& task : mailbox_->take()) task();
  look_for_launch_id();
  maintain_connection();
  const Ticks now = boot_now();
  tell_applied();
  perform(member_.tick(now));
  warn_where_start_waits();
  send_due_commands();
  send_reports();
  answer_store_notes();
  report_progress(Clock::now());
}

void AgentLoop::look_for_launch_id() {
  if (hub_) return;
  if (search_) {
    if (const auto found = search_->poll(boot_now())) launch_id_ = found->id;
  }
  if (!launch_id_.empty()) {
    search_.reset();
    member_.set_launch_id(launch_id_);
    hub_ = std::make_unique<HubConnection>(launch_id_, hub_settings_,
                                           (options_.rank.value % 8) * milliseconds(15));
    return;
  }
  const std::string last_error = search_ ? search_->last_error() : "";
  const std::string reason = options_.launch_id_error + (last_error.empty() ? "" : ": " + last_error);
  if (member_.refused() != reason) member_.give_up(reason);
  if (off_lines_.allows(reason, boot_now())) log_warn("off: " + reason);
}

void AgentLoop::maintain_connection() {
  if (!hub_) return;
  if (hub_->connected()) {
    if (hub_->process_io([this](std::string&& bytes) { on_frame(std::move(bytes)); },
                         [this] { end_lease(); }))
      return;
    log_debug("the connection to the hub is lost: " + hub_->trouble());
    const std::string again = "the hub of this host was lost three times within 10 s: see its hub.log";
    if (hub_->keeps_failing() && off_lines_.allows(again, boot_now())) log_warn(again);
    member_.disconnected();
  }
  const bool could_start = !hub_->gave_up_starting();
  if (hub_->poll_connect(Clock::now())) {
    introduce();
    perform(member_.connected(boot_now()));
    report_soon();
  } else if (could_start && hub_->gave_up_starting()) {
    log_warn("off: no hub on this host: " + hub_->trouble());
    member_.give_up("no hub on this host: " + hub_->trouble());
  }
}

// The coordinator drops this rank at once when the connection closes, and may decide about the next step.
void AgentLoop::end_lease() {
  if (options_.mode == Mode::dynamic) gate_.lapse();
}

void AgentLoop::introduce() {
  Introduction introduction = static_cast<const Introduction&>(options_);
  introduction.launch_id = launch_id_;
  introduction.has_store = options_.exchange_notes != nullptr;
  if (options_.rank.value == 0) introduction.lead_job = options_.lead;
  hub_->send(encode(Frame(std::move(introduction))));
}

// The hub asks for an exchange at its start, and while hubs of other hosts are missing.
void AgentLoop::on_store_notes(const std::string& own) {
  if (!options_.exchange_notes || notes_.under_way()) return;
  notes_.begin(
      [exchange = options_.exchange_notes, launch = launch_id_, own] { return exchange(launch, own); });
}

void AgentLoop::answer_store_notes() {
  auto found = notes_.poll();
  if (!found || !hub_) return;
  if (!*found) log_debug(found->error());
  hub_->send(encode(Frame(StoreNotes{"", std::move(*found).value_or(std::vector<std::string>{})})));
}

void AgentLoop::start() {
  started_ = true;
  started_at_ = boot_now();
  perform(member_.start(*started_at_));
}

void AgentLoop::warn_where_start_waits() {
  if (!started_at_ || start_wait_logged_ || !member_.holds_start()) return;
  if (boot_now() - *started_at_ < kSayStartWaits) return;
  start_wait_logged_ = true;
  const Status status = view_.status.get();
  log_warn("rank " + std::to_string(options_.rank.value) + ": " +
           (status.pending               ? status.pending->reason
            : hub_ && !hub_->connected() ? "waiting for the hub: " + hub_->trouble()
            : !lead_error_.empty()       ? "waiting for the lead hub: " + lead_error_
                                         : "waiting for the lead hub to answer Hello"));
}

void AgentLoop::on_frame(std::string&& bytes) {
  auto frame = decode_frame(bytes);
  if (!frame) return log_debug("from the hub: " + frame.error());
  if (auto* bundles = std::get_if<Bundles>(&*frame)) {
    for (Bundle& bundle : *bundles) on_bundle(std::move(bundle));
  } else if (const auto* answer = std::get_if<AddressedReply>(&*frame)) {
    pending_commands_.answered(answer->request_id, answer->reply);
  } else if (const auto* line = std::get_if<HubLogLine>(&*frame)) {
    log(line->level, line->text);
  } else if (const auto* notes = std::get_if<StoreNotes>(&*frame)) {
    on_store_notes(notes->own_note);
  } else if (auto* status = std::get_if<Status>(&*frame); status && options_.rank.value != 0) {
    lead_error_ = std::move(status->reason);
  } else if (status != nullptr) {
    job_status_at_ = Clock::now();
    view_.status.set(std::move(*status));
  }
}

void AgentLoop::on_bundle(Bundle bundle) {
  const auto own = std::find_if(bundle.to.begin(), bundle.to.end(),
                                [&](const auto& to) { return to.first == options_.rank.value; });
  if (own == bundle.to.end()) return;
  on_alert_message(bundle);
  const bool joined = member_.joined();
  const Envelope envelope{std::move(bundle.epoch), options_.rank, own->second, std::move(bundle.message)};
  perform(member_.on_envelope(envelope, boot_now()));
  const auto* welcome = std::get_if<Welcome>(&envelope.message);
  if (welcome != nullptr && member_.joined()) {
    if (hub_) hub_->welcomed();
    lead_error_.clear();
    hub_takes_alerts_ = welcome->takes_alerts;
    hub_takes_replicas_ = welcome->takes_replicas;
  }
  if (joined || !member_.joined() || welcome == nullptr) return;
  epoch_ = envelope.epoch;
  view_.job.set(JobIdentity{epoch_, welcome->run_id, welcome->started, launch_id_});
  report_soon();
}

// Answers a question about this rank's values, and takes alerts that the lead hub has found in them.
void AgentLoop::on_alert_message(const Bundle& bundle) {
  if (!member_.joined() || bundle.epoch != epoch_) return;
  if (const auto* request = std::get_if<ReplicaRequest>(&bundle.message)) {
    if (auto answer = replicas_->answer(*request, Clock::now())) to_coordinator(std::move(*answer));
  } else if (const auto* report = std::get_if<AlertReport>(&bundle.message); report && calls_.raise) {
    calls_.raise(*report);
  }
}

void AgentLoop::to_coordinator(Message message) {
  if (!hub_ || !hub_->connected()) return;
  if (epoch_.empty() && !std::holds_alternative<Hello>(message)) return;
  hub_->send(encode(Frame(Bundles{to_bundle(member_.to_coordinator(std::move(message)))})));
}

void AgentLoop::perform(MemberActions actions) {
  for (const std::string& line : actions.warnings) {
    log_warn("rank " + std::to_string(options_.rank.value) + ": " + line);
  }
  for (Message& message : actions.send) to_coordinator(std::move(message));
}

void AgentLoop::submit(Command command) {
  command.by = "the program of rank " + std::to_string(options_.rank.value) + ", " + host_name() + " pid " +
               std::to_string(getpid());
  pending_commands_.add(std::move(command), Clock::now());
}

void AgentLoop::send_due_commands() {
  const auto now = Clock::now();
  pending_commands_.drop_expired(now);
  if (!member_.joined()) return;
  for (const Command& command : pending_commands_.due(now)) hub_->send(encode(Frame(command)));
}

// An older hub would treat an AlertReport as an error and close the connection.
void AgentLoop::send_reports() {
  if (!member_.joined() || !hub_ || !hub_->connected()) return;
  while (auto report = hub_takes_alerts_ ? alerts_->take(Clock::now()) : std::nullopt)
    to_coordinator(std::move(*report));
  while (auto digests = hub_takes_replicas_ ? replicas_->take(Clock::now()) : std::nullopt)
    to_coordinator(std::move(*digests));
}

void AgentLoop::rows_on_disk(Revision revision) {
  perform(member_.finished(revision));
  report_soon();
}

void AgentLoop::begin_leaving(Step last, milliseconds at_most) {
  leave_by_ = Clock::now() + at_most;
  if (started_ && member_.joined()) {
    tell_applied();
    send_reports();
    tell_progress(report());
    perform(member_.leave(last));
  } else {
    leave_by_ = Clock::now();
  }
}

bool AgentLoop::may_exit() const {
  if (ends_now_) return true;
  if (!leave_by_) return false;
  return Clock::now() >= *leave_by_ || member_.left_acknowledged() || !hub_ || !hub_->connected();
}

void AgentLoop::tell_applied() {
  MemberActions applied = member_.applied();
  if (applied.send.empty()) return;
  perform(std::move(applied));
  report_soon();
}

// Makes the next report due now: a change must not wait for the regular one.
void AgentLoop::report_soon() { last_progress_ = last_publish_ = {}; }

void AgentLoop::report_progress(Clock::time_point now) {
  const auto pace = member_.busy() ? kProgressEveryWhileOpen : kProgressEvery;
  const bool due = now.time_since_epoch() / pace != last_progress_.time_since_epoch() / pace;
  if (!due && now - last_publish_ < kPublishEvery) return;
  last_publish_ = now;
  pace_.look(gate_.current(), now);
  CollectingReport current = report();
  const bool has_job_status = job_status_at_ && now - *job_status_at_ < kJobStatusMaxAge && member_.joined();
  if (!has_job_status) view_.status.set(own_status(current));
  if (!due || !member_.joined() || leave_by_) return;
  last_progress_ = now;
  tell_progress(std::move(current));
}

// The rank's own figures and the agent's.
CollectingReport AgentLoop::report() const {
  CollectingReport report = calls_.report();
  report.step_ms = pace_.step_ms();
  report.waited_ms = gate_.waiting_for(boot_now()).count();
  report.alerts = alerts_->raised();
  return report;
}

void AgentLoop::tell_progress(CollectingReport report) {
  Progress progress = member_.progress();
  static_cast<CollectingReport&>(progress) = std::move(report);
  progress.error.resize(std::min(progress.error.size(), kMostError));
  const std::size_t most_warnings = options_.rank.value == 0 ? kMostWarnings : 0;
  progress.warnings.resize(std::min(progress.warnings.size(), most_warnings));
  to_coordinator(member_.report(std::move(progress), boot_now()));
}

void AgentLoop::publish_stopped() noexcept {
  try {
    RankReport last = report();
    Status status = view_.status.get();
    status.state = "off";
    status.reason = "stopped";
    status.pending.reset();
    for (RankStatus& rank : status.ranks) {
      if (rank.rank != options_.rank) continue;
      if (last.error.empty()) last.error = rank.error;
      static_cast<RankReport&>(rank) = last;
    }
    view_.status.set(std::move(status));
  } catch (...) {
    log_warn("status() may be out of date: the last counts could not be read");
  }
}

Status AgentLoop::own_status(const CollectingReport& report) const {
  Status status;
  status.epoch = epoch_;
  status.launch_id = launch_id_;
  status.output_dir = options_.output_dir;
  status.mode = options_.mode == Mode::dynamic ? "dynamic" : "static";
  status.warnings = report.warnings;
  status.reason = member_.replaced() ? "another process has joined as this rank" : member_.refused();
  if (status.reason.empty() && hub_) status.reason = hub_->connected() ? lead_error_ : hub_->trouble();
  RankStatus own;
  static_cast<RankReport&>(own) = report;
  own.rank = options_.rank;
  own.host = host_name();
  own.pid = getpid();
  const Progress progress = member_.progress();
  own.step = progress.step.value;
  own.accepted = progress.closed;
  own.state = progress.waiting ? "waiting" : progress.collecting ? "collecting" : "idle";
  if (const auto in_force = gate_.in_force()) {
    const Schedule schedule = schedule_of(*in_force->plan, in_force->effective);
    status.state = progress.collecting ? "on" : "off";
    status.revision = own.revision = in_force->revision;
    status.effective_step = own.applied_step = in_force->effective.value;
    status.collected = schedule.collected_before(progress.step);
    status.collect_times = schedule.times();
    status.step_interval = schedule.interval();
    status.config_sha256 = in_force->plan->config_sha256;
  }
  status.ranks.push_back(std::move(own));
  return status;
}

}  // namespace gradmon
