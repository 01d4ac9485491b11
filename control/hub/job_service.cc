// SPDX-License-Identifier: Apache-2.0
#include "control/hub/job_service.h"

#include <algorithm>
#include <chrono>
#include <iterator>

#include "control/config/config_schema.h"
#include "control/host/history_file.h"
#include "control/text/utf8.h"

namespace gradmon {
namespace {

constexpr Ticks kForgottenAfter{10'000};
constexpr std::size_t kMostNamed = 16;
constexpr std::size_t kMostOfAName = 100;

constexpr WallTime kSayPendingAfter = 1'000;
constexpr int kHistoryRanksPerMillisecond = 64;
constexpr Ticks kSaveAgain{10'000};  // after a failed append to the history or the alerts
constexpr std::chrono::milliseconds kLookAtOutputEvery{2'000};
constexpr std::chrono::seconds kSilentAfter{2};
constexpr const char* kNoAnswer = ": no answer from the disk";
constexpr std::size_t kMostReason = 1'000;   // bytes of the reason in a refused change's history entry
constexpr std::size_t kMostOfASender = 256;  // bytes of a command's sender, and of its request id
constexpr std::size_t kMostRanksListed = 4'000;
constexpr std::size_t kMostStatusBytes = 500'000;  // for the errors of all ranks

// Makes the status fit into one message for any number of ranks.
void shorten(Status& status) {
  const std::size_t all = status.ranks.size();
  const std::size_t room = kMostStatusBytes / std::max<std::size_t>(all, 1);
  for (RankStatus& rank : status.ranks) {
    if (rank.error.size() > room) rank.error.resize(room);
  }
  if (all <= kMostRanksListed) return;
  Status rest;
  rest.revision = status.revision;
  const auto first = status.ranks.begin() + kMostRanksListed;
  rest.ranks.assign(std::make_move_iterator(first), std::make_move_iterator(status.ranks.end()));
  status.unlisted = count_agreeing_ranks(rest);
  status.ranks.resize(kMostRanksListed);
  status.warnings.push_back("the first " + std::to_string(kMostRanksListed) + " of " + std::to_string(all) +
                            " ranks are listed");
}

// Completes the reason of a job that is on, or has finished, under a config without a kind of row.
void name_missing_kinds(Config config, Status& status) {
  const bool nothing = !collects_anything(config);
  config.scalars.clear();
  const bool on = status.state == "on";
  if (collects_anything(config) || !(on || (nothing && status.reason == "finished"))) return;
  if (!status.reason.empty()) status.reason += on ? "; " : ": ";
  status.reason += std::string(nothing ? "nothing " : "nothing but training scalars ") + (on ? "is" : "was") +
                   " collected: " + kNoKind;
}

// "user@host pid 123" without the process.
std::string_view without_pid(std::string_view by) { return by.substr(0, by.rfind(" pid ")); }

}  // namespace

std::string ForeignPeers::name_of(const Envelope& envelope) const {
  const std::string rank = "rank " + std::to_string(envelope.rank.value);
  if (const auto* hello = std::get_if<Hello>(&envelope.message)) {
    if (hello->launch_id == job_.launch_id) return "";
    return rank + " of another launch (\"" + hello->launch_id.substr(0, kMostOfAName) + "\", pid " +
           std::to_string(hello->pid) + " on " + hello->host.substr(0, kMostOfAName) + ") asks to join";
  }
  // A sender without an epoch has not joined any launch.
  if (envelope.epoch == job_.epoch || envelope.epoch.empty()) return "";
  return rank + " of an earlier launch (epoch " + envelope.epoch.substr(0, 8) + ") still runs";
}

std::optional<std::string> ForeignPeers::hear(const Envelope& envelope, Ticks now) {
  std::string name = name_of(envelope);
  if (name.empty()) return {};
  const auto known = last_heard_.find(name);
  if (known != last_heard_.end()) {
    known->second = now;
    return {};
  }
  for (auto peer = last_heard_.begin(); last_heard_.size() >= kMostNamed && peer != last_heard_.end();)
    peer = now - peer->second < kForgottenAfter ? std::next(peer) : last_heard_.erase(peer);
  if (last_heard_.size() >= kMostNamed) return {};
  last_heard_[name] = now;
  return name;
}

std::vector<std::string> ForeignPeers::heard(Ticks now) const {
  std::vector<std::string> lines;
  for (const auto& [name, last] : last_heard_) {
    if (now - last < kForgottenAfter) lines.push_back(name);
  }
  return lines;
}

std::set<std::string> DiskReport::conditions() const {
  std::set<std::string> lines;
  if (disk_.current_task_age() >= kSilentAfter) lines.insert(place_ + kNoAnswer);
  for (const std::string& other : others_) lines.insert(place_ + " is used by another job, too: " + other);
  for (const std::string& note : notes_) lines.insert(place_ + ": " + note);
  return lines;
}

std::vector<std::string> DiskReport::warnings() const {
  std::vector<std::string> lines;
  const auto time = std::chrono::duration_cast<std::chrono::seconds>(disk_.current_task_age());
  for (const std::string& line : conditions())
    lines.push_back(line == place_ + kNoAnswer ? line + " for " + std::to_string(time.count()) + " s" : line);
  return lines;
}

std::vector<DiskReport::Line> DiskReport::take_changes() {
  std::vector<Line> lines;
  auto now = conditions();
  for (const std::string& line : now) {
    if (reported_.count(line) == 0) lines.emplace_back(LogLevel::warn, line);
  }
  for (const std::string& line : reported_) {
    if (now.count(line) == 0) lines.emplace_back(LogLevel::info, "resolved: " + line);
  }
  reported_ = std::move(now);
  return lines;
}

void JobState::tell(LogLevel level, const std::string& text) const {
  log(level, text);
  resources.channels.tell(level, text);
}

void JobState::note_error(ErrorSource source, std::string text) {
  tell(LogLevel::error, text);
  last_error_source_ = source;
  last_error = LastError{wall_now(), std::move(text), ++errors_};
}

void JobState::clear_error(ErrorSource source) {
  if (!last_error || last_error_source_ != source) return;
  tell(LogLevel::info, "resolved: " + last_error->text);
  last_error.reset();
}

void JobState::note_warnings(std::vector<std::string> new_warnings) {
  if (new_warnings != warnings) {
    for (const std::string& warning : new_warnings) tell(LogLevel::warn, warning);
  }
  warnings = std::move(new_warnings);
}

void JobState::take_config(std::string text, std::string sha256) {
  config_text = std::move(text);
  config_sha256 = std::move(sha256);
}

void JobState::add_refused(HistoryEntry entry, const std::string& why) {
  entry.verdict = "refused";
  entry.reason = why.size() <= kMostReason ? why : std::string(utf8_prefix(why, kMostReason)) + " ...";
  const HistoryEntry* newest = coordinator.journal().newest();
  const bool again = newest != nullptr && newest->verdict == entry.verdict &&
                     without_pid(newest->by) == without_pid(entry.by);
  if (again && newest->reason == entry.reason) return;
  entry.proposed_at = wall_now();
  entry.final = true;
  coordinator.journal().add(std::move(entry));
}

void JobState::note_saved(const std::string& what, const Result<void>& saved) {
  const std::string before = std::exchange(save_errors_[what], saved ? "" : saved.error());
  if (!saved) save_again = clock + kSaveAgain;
  if (!saved && before != saved.error()) log_warn(what + ": " + saved.error());
  if (saved && !before.empty()) log_info(what + ": written again");
}

JobService::JobService(HubJob job, JobResources resources)
    : state_(std::move(job), std::move(resources)),
      foreign_(state_.job),
      config_(state_),
      alerts_(state_),
      commands_(state_, config_),
      output_place_("output directory " + state_.job.output_dir, state_.resources.run_disk) {}

void JobService::open(const std::vector<LogEntry>& restored) {
  state_.restored = !restored.empty();
  if (state_.restored) perform(state_.coordinator.restore(restored, wall_now()));
  watch_output();
  alerts_.open();
  config_.open();
  perform({});
}

// Checks the output directory regularly for other jobs and for a disk that does not respond.
void JobService::watch_output() {
  const auto& resources = state_.resources;
  const HubJob& job = state_.job;
  resources.run_disk.watch([this, directory = fs::path(job.output_dir), own = job.registered(),
                            mailbox = resources.mailbox, made = output_jobs_] {
    const auto jobs = std::make_shared<JobRegistry>(directory / ".gradmon" / "jobs.lock", own);
    *made = jobs;
    return DiskThread::Watch{[] { return -1; }, [] { return kLookAtOutputEvery; },
                             [this, jobs, mailbox] {
                               auto others = jobs->refresh();
                               mailbox->post([this, others] { output_place_.used_by(others); });
                             }};
  });
}

// Only a job with a live rank counts as a user of the config and the output directory.
void JobService::note_ranks() {
  const Membership& members = state_.coordinator.membership();
  const auto live =
      std::any_of(members.begin(), members.end(), [](const auto& rank) { return rank.takes_part(); });
  const auto gone = std::any_of(members.begin(), members.end(), [](const auto& rank) { return rank.gone(); });
  const auto now = !live && gone ? JobRegistry::Ranks::gone : JobRegistry::Ranks::live;
  if (std::exchange(ranks_, now) == now) return;
  config_.file().note_ranks(now);
  state_.resources.run_disk.post([made = output_jobs_, now] {
    if (const auto jobs = made->lock()) jobs->note_ranks(now);
  });
}

void JobService::on_message(const Envelope& envelope) {
  if (const auto foreign = foreign_.hear(envelope, state_.clock)) state_.tell(LogLevel::warn, *foreign);
  perform(alerts_.on_message(envelope) ? CoordinatorActions{}
                                       : state_.coordinator.receive(envelope, wall_now()));
}

void JobService::on_command(const std::string& peer, Command command) {
  const bool too_long = command.request_id.size() > kMostOfASender;
  command.by = std::string(utf8_prefix(command.by, kMostOfASender));
  const CommandRole::Request asked{peer, std::move(command)};
  if (too_long) {
    return commands_.reply(
        asked, failed_reply(CommandOutcome::failed,
                            "the request id is longer than " + std::to_string(kMostOfASender) + " bytes"));
  }
  const CommandVerb verb = asked.command.verb;
  const bool done = commands_.on_command(asked);
  if (!done && verb == CommandVerb::targets) commands_.list_targets(asked, status());
  if (done || verb == CommandVerb::targets) return perform({});
  CommandReply reply;
  if (verb == CommandVerb::status) reply.status = status();
  if (verb == CommandVerb::history) reply.history = newest_history();
  if (verb == CommandVerb::alerts) reply = alerts_.listed(asked.command);
  if (verb == CommandVerb::config) reply = config_in_force();
  commands_.reply(asked, std::move(reply));
}

// The newest entries that fit into one message.
std::vector<HistoryEntry> JobService::newest_history() const {
  std::vector<HistoryEntry> entries = state_.coordinator.journal().entries();
  std::size_t room = kMaxFrameBytes;
  auto oldest = entries.end();
  while (oldest != entries.begin()) {
    const HistoryEntry& entry = *std::prev(oldest);
    const std::size_t bytes = 500 + 16 * entry.applied.size() + entry.by.size() + entry.reason.size();
    if (bytes > room && oldest != entries.end()) break;
    room -= std::min(bytes, room);
    --oldest;
  }
  entries.erase(entries.begin(), oldest);
  return entries;
}

// While collecting is off: the newest valid config, which the next `on` uses.
CommandReply JobService::config_in_force() const {
  CommandReply reply;
  reply.status = status();
  const PlanPtr plan = state_.coordinator.committed_plan();
  reply.config_text = state_.config_text;
  if (reply.status->state == "on") reply.config_text = plan ? plan->config_text : "";
  if (!state_.job.lead.dynamic) reply.config_text = state_.job.lead.static_text;
  if (!reply.config_text.empty()) return reply;
  const std::string why = state_.last_error ? ": " + state_.last_error->text : "";
  return failed_reply(CommandOutcome::failed, "the job has no valid config yet" + why);
}

void JobService::tick(Ticks elapsed) {
  state_.clock += elapsed;
  perform(state_.coordinator.tick(elapsed, wall_now()));
  note_ranks();
  commands_.tick();
  config_.tick();
  log_pending();
  alerts_.tick();
  for (DiskReport* place : {&config_.place(), &output_place_}) {
    for (const auto& [level, line] : place->take_changes()) state_.tell(level, line);
  }
  perform({});
  // An entry grows with every rank that answers. So large jobs save it less often, and nothing queues behind
  // a busy disk.
  const bool due =
      state_.clock - history_saved_ >= Ticks{state_.job.world_size / kHistoryRanksPerMillisecond};
  const auto busy_for = state_.resources.run_disk.current_task_age();
  if (busy_for != std::chrono::milliseconds{} || state_.clock < state_.save_again) return;
  if (due) save_history();
  alerts_.save();
}

void JobService::close() {
  save_history();
  alerts_.save();
}

// Logs a wait once, after a second; not again if only the ranks in the reason change.
void JobService::log_pending() {
  const auto pending = state_.coordinator.busy() ? state_.coordinator.pending() : std::nullopt;
  const bool lasts = pending && pending->since > 0 && wall_now() - pending->since >= kSayPendingAfter;
  std::string reason = lasts ? pending->reason.substr(0, pending->reason.find_first_of("(0123456789")) : "";
  if (reason == logged_pending_) return;
  if (!reason.empty()) state_.tell(LogLevel::warn, pending->reason);
  if (reason.empty()) state_.tell(LogLevel::info, "the pending change is resolved");
  logged_pending_ = std::move(reason);
}

// Performs these actions and those of the roles, also those that they have while these are performed.
void JobService::perform(CoordinatorActions due) {
  const auto rest = [this] { return std::exchange(state_.actions, {}); };
  for (due += rest(); !due.empty(); due = rest()) {
    for (const std::string& line : due.log) state_.tell(LogLevel::info, line);
    for (const std::string& line : due.warnings) state_.tell(LogLevel::warn, line);
    if (due.write_back) config_.write_back(*due.write_back);
    for (DryRunResult& result : due.dry_runs) commands_.dry_run_ended(std::move(result));
    for (Outgoing& outgoing : due.send) state_.resources.channels.send(std::move(outgoing));
  }
}

Status JobService::status() const {
  Status status = state_.coordinator.status();
  status.mode = state_.job.lead.dynamic ? "dynamic" : "static";
  if (state_.job.lead.dynamic && !state_.begun) status.reason = "starting";
  if (status.reason == "never turned on" && !config_.off_since().empty()) status.reason = config_.off_since();
  if (!state_.broken_file.empty()) status.reason = "the newest edit is refused: " + state_.broken_file;
  if (!state_.job.lead.dynamic) describe_static(status);
  if (const auto& config = alerts_.config()) name_missing_kinds(*config, status);
  status.name = state_.job.lead.name;
  status.torch = state_.job.lead.torch;
  status.hooks = state_.job.lead.hooks;
  status.config_path = state_.job.lead.config_path;
  status.output_dir = state_.job.output_dir;
  if (status.config_sha256.empty()) status.config_sha256 = state_.config_sha256;
  status.last_error = state_.last_error;
  status.warnings.insert(status.warnings.end(), state_.warnings.begin(), state_.warnings.end());
  const auto& of_rank0 = state_.coordinator.membership().of(0).progress.warnings;
  status.warnings.insert(status.warnings.end(), of_rank0.begin(), of_rank0.end());
  for (const DiskReport* place : {&config_.place(), &output_place_}) {
    for (std::string& line : place->warnings()) status.warnings.push_back(std::move(line));
  }
  for (std::string& foreign : foreign_.heard(state_.clock)) status.warnings.push_back(std::move(foreign));
  alerts_.describe(status);
  shorten(status);
  return status;
}

// Static mode has no agreement: the config and rank 0's Progress give the state.
void JobService::describe_static(Status& status) const {
  const Membership::Member& rank0 = state_.coordinator.membership().of(0);
  status.state = rank0.progress.collecting ? "on" : "off";
  status.reason = "";
  if (alerts_.config() && rank0.phase != Membership::Phase::absent) {
    const Config& config = *alerts_.config();
    const Schedule steps = static_schedule(Step{config.start_step}, rank0.hello.start_iteration,
                                           config.step_interval, config.collect_times);
    status.effective_step = steps.first().value;
    status.collected = steps.collected_before(rank0.progress.step);
    status.collect_times = steps.times();
    status.step_interval = steps.interval();
    status.reason = rank0.progress.step >= steps.end() ? "finished" : "dynamic_on is ignored";
    if (rank0.progress.step < steps.first())
      status.reason = "collecting begins at step " + std::to_string(steps.first().value);
  }
  status.config_sha256 = sha256_hex(state_.job.lead.static_text);
}

void JobService::save_history() {
  history_saved_ = state_.clock;
  const auto changed =
      std::make_shared<std::map<Journal::Key, HistoryEntry>>(state_.coordinator.journal().take_changed());
  if (changed->empty() || !state_.job.lead.dynamic) return;
  const auto file = fs::path(state_.job.output_dir) / ".gradmon" / state_.job.epoch / "history.jsonl";
  const auto& resources = state_.resources;
  resources.run_disk.post([this, file, changed, mailbox = resources.mailbox] {
    mailbox->post([this, changed, saved = append_history(file, *changed)] {
      for (const auto& [key, entry] : *changed) {
        if (!saved) state_.coordinator.journal().touch(key);
      }
      state_.note_saved("history", saved);
    });
  });
}

namespace {

constexpr Ticks kFirstWriteBackPause{2'000};  // before a failed write-back is retried; then doubled
constexpr Ticks kMaxWriteBackPause{60'000};

}  // namespace

ConfigRole::ConfigRole(JobState& state)
    : state_(state),
      file_({state_.job.lead.config_path, state_.job.output_dir, state_.job.registered()},
            state_.resources.config_disk, state_.resources.mailbox),
      place_("config " + state_.job.lead.config_path, state_.resources.config_disk) {}

void ConfigRole::open() {
  if (!state_.job.lead.dynamic) {
    begin(nullptr);
    return watch_static_config();
  }
  file_.watch({[this](ConfigService::Content content, const std::string& writer) {
                 on_content(std::move(content), writer);
               },
               [this](std::vector<std::string> others, std::vector<std::string> superseded) {
                 place_.used_by(std::move(others));
                 place_.notes(std::move(superseded));
               }});
}

// Begins the epoch, once.
void ConfigRole::begin(PlanPtr plan) {
  if (!std::exchange(state_.begun, true))
    state_.actions += state_.coordinator.begin(std::move(plan), wall_now());
}

// Static mode writes nothing into the config, so it makes no JobRegistry beside the file.
void ConfigRole::watch_static_config() {
  state_.resources.config_disk.watch([this, mailbox = state_.resources.mailbox, lead = state_.job.lead] {
    const auto file = std::make_shared<ConfigFile>(lead.config_path);
    return DiskThread::Watch{[file] { return file->event_fd(); }, [file] { return file->next_poll(); },
                             [this, mailbox, file, read = lead.static_text] {
                               while (const auto content = file->poll()) {
                                 if (*content && (*content)->text != read)
                                   mailbox->post([this] { log_static_mode(); });
                               }
                             }};
  });
}

void ConfigRole::log_static_mode() {
  if (!std::exchange(static_mode_logged_, true))
    state_.tell(LogLevel::warn, "static mode: edits are not read; start with DYNAMIC_MONITOR=True");
}

void ConfigRole::on_content(ConfigService::Content content, const std::string& writer) {
  if (!writer.empty() && (state_.begun || state_.restored)) return ignore_save_by(writer, *content);
  auto source = content ? state_.read_plan(*content)
                        : tl::unexpected(state_.job.lead.config_path + ": " + content.error());
  if (!source) {
    state_.broken_file = content ? source.error() : "";
    state_.note_error(JobState::ErrorSource::content, source.error());
    HistoryEntry entry;
    entry.cause = name_of(state_.begun ? Cause::file : Cause::start);
    entry.by = state_.job.lead.config_path;
    // A file that never existed is no edit.
    if (content || state_.begun) state_.add_refused(std::move(entry), source.error());
    return begin(nullptr);
  }
  adopt(*content, std::move(*source));
}

// A save by another job (at its end, or for a command to it) does not concern this job.
void ConfigRole::ignore_save_by(const std::string& writer, const FileContent& content) {
  state_.tell(LogLevel::info,
              state_.job.lead.config_path + " was written by " + writer + ", not by the user: ignored");
  state_.take_config(content.text, content.identity.sha256);
  state_.clear_error(JobState::ErrorSource::content);
  write_back_is_over();
  begin(nullptr);
}

void ConfigRole::write_back_is_over() {
  pending_write_back_.reset();
  write_back_pause_ = {};
  state_.clear_error(JobState::ErrorSource::write_back);
}

void ConfigRole::adopt(const FileContent& content, PlanSource source) {
  if (!first_config_) first_config_ = source.config();
  for (const std::string_view key : changed_restart_keys(*first_config_, source.config())) {
    source.warnings.push_back("\"" + std::string(key) + "\" takes effect at the next start");
  }
  state_.note_warnings(source.warnings);
  state_.broken_file.clear();
  state_.clear_error(JobState::ErrorSource::content);
  state_.take_config(content.text, source.plan->config_sha256);
  state_.write_back_allowed = source.config().write_back;
  source.plan->file = content.identity;
  source.plan->by = state_.job.lead.config_path;
  source.plan->cause = state_.begun ? Cause::file : Cause::start;
  if (pending_write_back_ && pending_write_back_->file != content.identity)
    write_back_is_over();  // It was due for the earlier save only.
  if (!state_.begun) {
    if (!source.plan->on && !state_.restored) explain_off();
    begin(source.plan);
  } else if (source.plan->on || !state_.coordinator.newest_is_off()) {
    state_.actions += state_.coordinator.propose(source.plan, wall_now());
  } else {
    state_.coordinator.forget_refusal();
  }
}

// Explains an off: if the newest change in the history of this output directory has ended by itself, that job
// wrote the file back.
void ConfigRole::explain_off() {
  state_.resources.run_disk.post([this, directory = fs::path(state_.job.output_dir),
                                  mailbox = state_.resources.mailbox] {
    std::int64_t last = -1;
    for (const HistoryEntry& entry : history_from_files(directory).value_or(std::vector<HistoryEntry>())) {
      if (entry.verdict == "commit") last = entry.on ? entry.finished_step : -1;
    }
    mailbox->post([this, last] {
      if (last >= 0)
        off_since_ =
            "dynamic_on is false: an earlier job wrote it back when its collection ended with step " +
            std::to_string(last);
      state_.tell(LogLevel::info, "off: " + (last < 0 ? "dynamic_on is false" : off_since_) + " (true in " +
                                      state_.job.lead.config_path + ", or gradmonctl on, starts collecting)");
    });
  });
}

void ConfigRole::write_back(WriteBack due) {
  pending_write_back_.reset();
  if (!state_.write_back_allowed) return state_.coordinator.write_back_ended(due.revision);
  const bool first = write_back_pause_ == Ticks{};
  write_back_pause_ = std::clamp(2 * write_back_pause_, kFirstWriteBackPause, kMaxWriteBackPause);
  next_write_back_ = state_.clock + write_back_pause_;
  file_.write_back(due.file, [this, due, first](ConfigService::Edited edited) {
    if (edited) {
      state_.take_config(edited->text, edited->identity.sha256);
    } else if (edited.error().kind != EditError::Kind::changed) {
      const std::string text = "dynamic_on could not be written back: " + edited.error().text;
      if (first) state_.note_error(JobState::ErrorSource::write_back, text);
      pending_write_back_ = due;  // Retried until it succeeds or the file has another save.
    }
    if (!pending_write_back_) write_back_is_over();
    state_.coordinator.write_back_ended(due.revision);
  });
}

void ConfigRole::tick() {
  if (pending_write_back_ && state_.clock >= next_write_back_) write_back(*pending_write_back_);
}

}  // namespace gradmon
