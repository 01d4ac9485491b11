// SPDX-License-Identifier: Apache-2.0
#include "control/hub/job_service.h"

#include <algorithm>
#include <chrono>
#include <iterator>

#include "control/config/config_schema.h"
#include "control/host/history_file.h"

namespace gradmon {
namespace {

constexpr Ticks kForgottenAfter{10'000};
constexpr std::size_t kMostNamed = 16;
constexpr std::size_t kMostOfAName = 100;

constexpr Ticks kFirstWriteBackPause{2'000};  // before a failed write-back is retried; then doubled
constexpr Ticks kMaxWriteBackPause{60'000};
constexpr WallTime kSayPendingAfter = 1'000;
constexpr int kHistoryRanksPerMillisecond = 64;
constexpr Ticks kSaveAgain{10'000};  // after a failed append to the history or the alerts
constexpr std::chrono::milliseconds kLookAtOutputEvery{2'000};
constexpr Ticks kLookAtReplicasEvery{200};
constexpr std::chrono::seconds kSilentAfter{2};
constexpr const char* kNoAnswer = ": no answer from the disk";
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

std::vector<Journal::Key> journal_keys(const std::map<Journal::Key, HistoryEntry>& entries) {
  std::vector<Journal::Key> keys;
  for (const auto& entry : entries) keys.push_back(entry.first);
  return keys;
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

JobRegistry::Job own_name(const JobService::Job& job) { return {job.launch_id, job.lead.name, host_name()}; }

}  // namespace

ForeignPeers::ForeignPeers(std::string epoch, std::string launch_id)
    : epoch_(std::move(epoch)), launch_id_(std::move(launch_id)) {}

std::string ForeignPeers::name_of(const Envelope& envelope) const {
  const std::string rank = "rank " + std::to_string(envelope.rank.value);
  if (const auto* hello = std::get_if<Hello>(&envelope.message)) {
    if (hello->launch_id == launch_id_) return "";
    return rank + " of another launch (\"" + hello->launch_id.substr(0, kMostOfAName) + "\", pid " +
           std::to_string(hello->pid) + " on " + hello->host.substr(0, kMostOfAName) + ") asks to join";
  }
  // A sender without an epoch has not joined any launch.
  if (envelope.epoch == epoch_ || envelope.epoch.empty()) return "";
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
  if (last_heard_.size() >= kMostNamed) forget_silent(now);
  if (last_heard_.size() >= kMostNamed) return {};
  last_heard_[name] = now;
  return name;
}

void ForeignPeers::forget_silent(Ticks now) {
  for (auto peer = last_heard_.begin(); peer != last_heard_.end();)
    peer = now - peer->second < kForgottenAfter ? std::next(peer) : last_heard_.erase(peer);
}

std::vector<std::string> ForeignPeers::heard(Ticks now) const {
  std::vector<std::string> lines;
  for (const auto& [name, last] : last_heard_) {
    if (now - last < kForgottenAfter) lines.push_back(name);
  }
  return lines;
}

bool DiskReport::is_unresponsive() const { return disk_.current_task_age() >= kSilentAfter; }

std::set<std::string> DiskReport::conditions() const {
  std::set<std::string> lines;
  if (is_unresponsive()) lines.insert(place_ + kNoAnswer);
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

JobService::JobService(Job job, Dependencies dependencies)
    : job_(std::move(job)),
      dependencies_(std::move(dependencies)),
      coordinator_(static_cast<const Coordinator::Job&>(job_), dependencies_.log),
      foreign_(job_.epoch, job_.launch_id),
      alerts_(static_cast<std::uint64_t>(std::max<WallTime>(wall_now(), 1))),
      alert_command_({job_.lead.name, job_.launch_id, job_.output_dir, job_.lead.config_path}),
      replicas_(job_.world_size),
      config_({job_.lead.config_path, job_.output_dir, own_name(job_)}, dependencies_.config_disk,
              dependencies_.mailbox),
      config_place_("config " + job_.lead.config_path, dependencies_.config_disk),
      output_place_("output directory " + job_.output_dir, dependencies_.run_disk) {}

void JobService::open(const std::vector<LogEntry>& restored) {
  restored_ = !restored.empty();
  if (restored_) perform(coordinator_.restore(restored, wall_now()));
  watch_output();
  read_earlier_alerts();
  if (!job_.lead.dynamic) {
    begun_ = true;
    perform(coordinator_.begin(nullptr, wall_now()));
    refuse_static_capture();
    return watch_static_config();
  }
  config_.watch({[this](ConfigService::Content content, const std::string& writer) {
                   on_content(std::move(content), writer);
                 },
                 [this](std::vector<std::string> others, std::vector<std::string> superseded) {
                   config_place_.used_by(std::move(others));
                   config_place_.notes(std::move(superseded));
                 }});
}

// Static mode writes nothing into the config, so it makes no JobRegistry beside the file.
void JobService::watch_static_config() {
  dependencies_.config_disk.watch([this, mailbox = dependencies_.mailbox, lead = job_.lead] {
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

void JobService::log_static_mode() {
  if (!std::exchange(static_mode_logged_, true))
    tell(LogLevel::warn, "static mode: edits are not read; start with DYNAMIC_MONITOR=True");
}

// Checks the output directory regularly for other jobs and for a disk that does not respond.
void JobService::watch_output() {
  dependencies_.run_disk.watch([this, directory = std::filesystem::path(job_.output_dir),
                                own = own_name(job_), mailbox = dependencies_.mailbox, made = output_jobs_] {
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
  const Membership& members = coordinator_.membership();
  const auto live =
      std::any_of(members.begin(), members.end(), [](const auto& rank) { return rank.takes_part(); });
  const auto gone = std::any_of(members.begin(), members.end(), [](const auto& rank) { return rank.gone(); });
  const auto now = !live && gone ? JobRegistry::Ranks::gone : JobRegistry::Ranks::live;
  if (std::exchange(ranks_, now) == now) return;
  config_.note_ranks(now);
  dependencies_.run_disk.post([made = output_jobs_, now] {
    if (const auto jobs = made->lock()) jobs->note_ranks(now);
  });
}

void JobService::on_message(const Envelope& envelope) {
  if (const auto foreign = foreign_.hear(envelope, clock_)) tell(LogLevel::warn, *foreign);
  if (const auto* report = std::get_if<AlertReport>(&envelope.message)) return on_alerts(envelope, *report);
  if (std::holds_alternative<ReplicaDigests>(envelope.message) ||
      std::holds_alternative<ReplicaValues>(envelope.message))
    return on_replicas(envelope);
  perform(coordinator_.receive(envelope, wall_now()));
}

void JobService::tick(Ticks elapsed) {
  clock_ += elapsed;
  perform(coordinator_.tick(elapsed, wall_now()));
  note_ranks();
  check_pending_edits();
  if (pending_write_back_ && clock_ >= next_write_back_) write_back(*pending_write_back_);
  log_pending();
  if (const auto failure = alert_command_.poll()) tell(LogLevel::warn, *failure);
  ReplicaComparison::Actions waited;
  if (clock_ - replicas_looked_at_ >= kLookAtReplicasEvery) {
    replicas_looked_at_ = clock_;
    waited = replicas_.tick(clock_);
  }
  perform(std::move(waited));  // also raises the remaining alerts of ended ranks
  alerting();                  // describe_replicas() needs the newest
  capture_waiting();
  for (DiskReport* place : {&config_place_, &output_place_}) {
    for (const auto& [level, line] : place->take_changes()) tell(level, line);
  }
  // An entry grows with every rank that answers. So large jobs save it less often, and nothing queues behind
  // a busy disk.
  const bool due = clock_ - history_saved_ >= Ticks{job_.world_size / kHistoryRanksPerMillisecond};
  if (dependencies_.run_disk.current_task_age() != std::chrono::milliseconds{} || clock_ < save_again_)
    return;
  if (due) save_history();
  save_alerts();
}

void JobService::close() {
  save_history();
  save_alerts();
}

// Logs a wait once, after a second; not again if only the ranks in the reason change.
void JobService::log_pending() {
  const auto pending = coordinator_.busy() ? coordinator_.pending() : std::nullopt;
  const bool lasts = pending && pending->since > 0 && wall_now() - pending->since >= kSayPendingAfter;
  std::string reason = lasts ? pending->reason.substr(0, pending->reason.find_first_of("(0123456789")) : "";
  if (reason == logged_pending_) return;
  if (!reason.empty()) tell(LogLevel::warn, pending->reason);
  if (reason.empty()) tell(LogLevel::info, "the pending change is resolved");
  logged_pending_ = std::move(reason);
}

void JobService::perform(CoordinatorActions actions) {
  for (const std::string& line : actions.log) tell(LogLevel::info, line);
  for (const std::string& line : actions.warnings) tell(LogLevel::warn, line);
  if (actions.write_back) write_back(*actions.write_back);
  for (DryRunResult& result : actions.dry_runs) dry_run_ended(std::move(result));
  for (Outgoing& outgoing : actions.send) dependencies_.send(std::move(outgoing));
}

void JobService::on_content(ConfigService::Content content, const std::string& writer) {
  if (!writer.empty() && (begun_ || restored_)) return ignore_save_by(writer, *content);
  auto source = content ? plan_from_config(*content, job_.lead.config_path)
                        : tl::unexpected(job_.lead.config_path + ": " + content.error());
  if (!source) {
    broken_file_ = content ? source.error() : "";
    note_error(ErrorSource::content, source.error());
    if (content || begun_) note_refused_edit(source.error());  // A file that never existed is no edit.
    if (!std::exchange(begun_, true)) perform(coordinator_.begin(nullptr, wall_now()));
    return;
  }
  adopt(*content, std::move(*source));
}

// A save by another job (at its end, or for a command to it) does not concern this job.
void JobService::ignore_save_by(const std::string& writer, const FileContent& content) {
  tell(LogLevel::info, job_.lead.config_path + " was written by " + writer + ", not by the user: ignored");
  adopted_text_ = content.text;
  adopted_sha256_ = content.identity.sha256;
  clear_error(ErrorSource::content);
  write_back_is_over();
  if (!std::exchange(begun_, true)) perform(coordinator_.begin(nullptr, wall_now()));
}

void JobService::write_back_is_over() {
  pending_write_back_.reset();
  write_back_pause_ = {};
  clear_error(ErrorSource::write_back);
}

void JobService::adopt(const FileContent& content, PlanSource source) {
  if (!first_config_) first_config_ = source.config();
  for (const std::string_view key : changed_restart_keys(*first_config_, source.config())) {
    source.warnings.push_back("\"" + std::string(key) + "\" takes effect at the next start");
  }
  note_warnings(source.warnings);
  broken_file_.clear();
  clear_error(ErrorSource::content);
  adopted_text_ = content.text;
  adopted_sha256_ = source.plan->config_sha256;
  write_back_allowed_ = source.config().write_back;
  source.plan->file = content.identity;
  source.plan->by = job_.lead.config_path;
  source.plan->cause = begun_ ? Cause::file : Cause::start;
  if (pending_write_back_ && pending_write_back_->file != content.identity)
    write_back_is_over();  // It was due for the earlier save only.
  if (!std::exchange(begun_, true)) {
    if (!source.plan->on && !restored_) explain_off();
    perform(coordinator_.begin(source.plan, wall_now()));
  } else if (source.plan->on || !coordinator_.newest_is_off()) {
    perform(coordinator_.propose(source.plan, wall_now()));
  } else {
    coordinator_.forget_refusal();
  }
}

// Explains an off: if the newest change in the history of this output directory has ended by itself, that job
// wrote the file back.
void JobService::explain_off() {
  dependencies_.run_disk.post([this, directory = std::filesystem::path(job_.output_dir),
                               mailbox = dependencies_.mailbox] {
    std::int64_t last = -1;
    for (const HistoryEntry& entry : history_from_files(directory).value_or(std::vector<HistoryEntry>())) {
      if (entry.verdict == "commit") last = entry.on ? entry.finished_step : -1;
    }
    mailbox->post([this, last] {
      if (last >= 0)
        off_since_ =
            "dynamic_on is false: an earlier job wrote it back when its collection ended with step " +
            std::to_string(last);
      tell(LogLevel::info, "off: " + (last < 0 ? "dynamic_on is false" : off_since_) + " (true in " +
                               job_.lead.config_path + ", or gradmonctl on, starts collecting)");
    });
  });
}

void JobService::write_back(WriteBack due) {
  pending_write_back_.reset();
  if (!write_back_allowed_) return coordinator_.write_back_ended(due.revision);
  const bool first = write_back_pause_ == Ticks{};
  write_back_pause_ = std::clamp(2 * write_back_pause_, kFirstWriteBackPause, kMaxWriteBackPause);
  next_write_back_ = clock_ + write_back_pause_;
  config_.write_back(due.file, [this, due, first](ConfigService::Edited edited) {
    if (edited) {
      adopted_text_ = edited->text;
      adopted_sha256_ = edited->identity.sha256;
    } else if (edited.error().kind != EditError::Kind::changed) {
      const std::string text = "dynamic_on could not be written back: " + edited.error().text;
      if (first) note_error(ErrorSource::write_back, text);
      pending_write_back_ = due;  // Retried until it succeeds or the file has another save.
    }
    if (!pending_write_back_) write_back_is_over();
    coordinator_.write_back_ended(due.revision);
  });
}

Status JobService::status() const {
  Status status = coordinator_.status();
  status.mode = job_.lead.dynamic ? "dynamic" : "static";
  if (job_.lead.dynamic && !begun_) status.reason = "starting";
  if (status.reason == "never turned on" && !off_since_.empty()) status.reason = off_since_;
  if (!broken_file_.empty()) status.reason = "the newest edit is refused: " + broken_file_;
  if (!job_.lead.dynamic) describe_static(status);
  if (alerting_.config) name_missing_kinds(*alerting_.config, status);
  status.name = job_.lead.name;
  status.torch = job_.lead.torch;
  status.hooks = job_.lead.hooks;
  status.config_path = job_.lead.config_path;
  status.output_dir = job_.output_dir;
  if (status.config_sha256.empty()) status.config_sha256 = adopted_sha256_;
  status.last_error = last_error_;
  status.warnings.insert(status.warnings.end(), warnings_.begin(), warnings_.end());
  const auto& of_rank0 = coordinator_.membership().of(0).progress.warnings;
  status.warnings.insert(status.warnings.end(), of_rank0.begin(), of_rank0.end());
  for (const DiskReport* place : {&config_place_, &output_place_}) {
    for (std::string& line : place->warnings()) status.warnings.push_back(std::move(line));
  }
  for (std::string& foreign : foreign_.heard(clock_)) status.warnings.push_back(std::move(foreign));
  count_alerts(status);
  if (!alert_command_.failure().empty()) status.warnings.push_back(alert_command_.failure());
  for (std::string& line : replica_warnings()) status.warnings.push_back(std::move(line));
  describe_replicas(status);
  shorten(status);
  return status;
}

// Static mode has no agreement: the config and rank 0's Progress give the state.
void JobService::describe_static(Status& status) const {
  const Membership::Member& rank0 = coordinator_.membership().of(0);
  status.state = rank0.progress.collecting ? "on" : "off";
  status.reason = "";
  if (alerting_.config && rank0.phase != Membership::Phase::absent) {
    const Config& config = *alerting_.config;
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
  status.config_sha256 = sha256_hex(job_.lead.static_text);
}

// Writes into the hub's log and into rank 0's.
void JobService::tell(LogLevel level, const std::string& text) const {
  log(level, text);
  dependencies_.tell(level, text);
}

void JobService::note_error(ErrorSource source, std::string text) {
  tell(LogLevel::error, text);
  last_error_source_ = source;
  last_error_ = LastError{wall_now(), std::move(text), ++errors_};
}

void JobService::clear_error(ErrorSource source) {
  if (!last_error_ || last_error_source_ != source) return;
  tell(LogLevel::info, "resolved: " + last_error_->text);
  last_error_.reset();
}

void JobService::note_warnings(std::vector<std::string> warnings) {
  if (warnings != warnings_) {
    for (const std::string& warning : warnings) tell(LogLevel::warn, warning);
  }
  warnings_ = std::move(warnings);
}

void JobService::save_history() {
  history_saved_ = clock_;
  auto changed = coordinator_.journal().take_changed();
  if (changed.empty() || !job_.lead.dynamic) return;
  const auto file = std::filesystem::path(job_.output_dir) / ".gradmon" / job_.epoch / "history.jsonl";
  dependencies_.run_disk.post([this, file, changed = std::move(changed), mailbox = dependencies_.mailbox] {
    auto saved = append_history(file, changed);
    mailbox->post([this, keys = saved ? std::vector<Journal::Key>() : journal_keys(changed), saved] {
      for (const Journal::Key key : keys) coordinator_.journal().touch(key);
      note_saved("history", saved);
    });
  });
}

// Rows that could not be written remain due. `what` names them in the log.
void JobService::note_saved(const std::string& what, const tl::expected<void, std::string>& saved) {
  const std::string before = std::exchange(save_errors_[what], saved ? "" : saved.error());
  if (!saved) save_again_ = clock_ + kSaveAgain;
  if (!saved && before != saved.error()) log_warn(what + ": " + saved.error());
  if (saved && !before.empty()) log_info(what + ": written again");
}

}  // namespace gradmon
