// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "control/agree/coordinator.h"
#include "control/agree/decision_log.h"
#include "control/agree/message.h"
#include "control/agree/plan.h"
#include "control/alerts/alert_history.h"
#include "control/alerts/alert_report.h"
#include "control/alerts/replica_comparison.h"
#include "control/config/config.h"
#include "control/host/child_process.h"
#include "control/hub/config_service.h"
#include "control/hub/disk_thread.h"
#include "control/log.h"
#include "control/aliases.h"
#include "control/wire/command.h"
#include "control/wire/messages.h"

namespace gradmon {

// The reason of a config that collects nothing (collects_anything()), and the keys that change it.
inline constexpr const char* kNoKind =
    "the config enables no kind of row (set wg_distribution, param_distribution, xy_distribution, ...)";

// Processes that send to the lead hub but do not belong to its job: processes of an earlier launch, and
// processes of another launch that say Hello. Status and log only name them. One thread; the caller passes
// the time.
class ForeignPeers {
 public:
  explicit ForeignPeers(JobIdentity job) : job_(std::move(job)) {}

  // Returns a log line if the sender is foreign and was not heard before.
  std::optional<std::string> hear(const Envelope& envelope, Ticks now);
  // Status lines for those heard within the last ten seconds.
  std::vector<std::string> heard(Ticks now) const;

 private:
  std::string name_of(const Envelope& envelope) const;  // "": of this job

  const JobIdentity job_;
  std::map<std::string, Ticks> last_heard_;  // by line; bounded
};

// The lead hub's job. Constant over its life.
struct HubJob : JobIdentity {
  std::string output_dir;
  LeadJob lead;

  JobRegistry::Job registered() const { return {launch_id, lead.name, host_name()}; }
};

// Runs the program of `on_alert.exec` when alerts arrive: one at a time, at most every kLeastPause, each for
// at most kTimeLimit. writers/alerts/ALERTS.md describes the program's input. The lead hub's thread only.
class AlertCommand {
 public:
  static constexpr Ticks kLeastPause{10'000};
  static constexpr Ticks kTimeLimit{30'000};

  // `job` must outlive this object.
  explicit AlertCommand(const HubJob& job) : job_(job) {}

  // Alerts have arrived, and `left_out` others with them. Runs `exec`, or counts the alerts for its next run.
  // `now`: of a steady clock.
  void on_alerts(const std::vector<std::string>& exec, Ticks cooldown, const std::vector<Alert>& alerts,
                 std::uint64_t left_out, Ticks now);
  // Call it at least every second. Returns a line for the log if a program has failed.
  std::optional<std::string> poll();
  // The failure of the last program, or "".
  const std::string& failure() const { return failure_; }

 private:
  std::string input(const std::vector<Alert>& alerts, std::uint64_t left_out);
  std::vector<std::string> environment(const Alert& alert) const;

  const HubJob& job_;
  AlertTrigger trigger_;
  std::optional<LimitedProcess> running_;
  std::string program_;       // path of the last program
  std::uint64_t missed_ = 0;  // alerts since the last run that no program received
  std::string failure_;
  bool failed_to_start_ = false;  // poll() must still report it
};

// Status lines about one place on a disk: whether the disk responds, and the other jobs that use the place.
// The hub's thread.
class DiskReport {
 public:
  using Line = std::pair<LogLevel, std::string>;

  // `place` for people: "output directory /out". `disk` is the thread that works there; it must outlive
  // this object.
  DiskReport(std::string place, const DiskThread& disk) : place_(std::move(place)), disk_(disk) {}

  void used_by(std::vector<std::string> others) { others_ = std::move(others); }
  void notes(std::vector<std::string> lines) { notes_ = std::move(lines); }
  std::vector<std::string> warnings() const;
  // A log line for each condition that began or ended since the last call.
  std::vector<Line> take_changes();

 private:
  std::set<std::string> conditions() const;

  const std::string place_;
  const DiskThread& disk_;
  std::vector<std::string> others_;
  std::vector<std::string> notes_;
  std::set<std::string> reported_;
};

// The outputs of a JobService. Implemented by the lead hub.
class JobChannels {
 public:
  virtual void send(Outgoing outgoing) = 0;  // to ranks of all hosts
  virtual void reply(const std::string& peer, const std::string& request_id, CommandReply reply) = 0;
  virtual void tell(LogLevel level, const std::string& text) = 0;  // writes a line into rank 0's log
  virtual void publish(const std::vector<Alert>& alerts) = 0;      // to subscribers; never waits

 protected:
  ~JobChannels() = default;
};

// The objects that a JobService uses; all outlive it. Each disk has its own thread, so that a hanging
// file system delays nothing else.
struct JobResources {
  DiskThread& config_disk;
  DiskThread& run_disk;
  DecisionLog& log;
  std::shared_ptr<Mailbox> mailbox;
  JobChannels& channels;
};

// The state of a job that the roles of a JobService share. The hub's thread only.
struct JobState {
  // The source of an error: the content of the config, or writing back into it.
  enum class ErrorSource { content, write_back };

  JobState(HubJob of, JobResources used)
      : job(std::move(of)), resources(std::move(used)), coordinator(job, resources.log) {}

  // Writes into the hub's log and into rank 0's.
  void tell(LogLevel level, const std::string& text) const;
  void note_error(ErrorSource source, std::string text);
  void clear_error(ErrorSource source);
  void note_warnings(std::vector<std::string> new_warnings);
  // Makes the plan of a config text, or of a save, of this job.
  template <typename Content>
  Result<PlanSource> read_plan(const Content& content) const {
    return plan_from_config(content, job.lead.config_path);
  }
  // The text is the newest valid config.
  void take_config(std::string text, std::string sha256);
  // Notes a refused change in the history. Skips a repetition of the newest entry, so that repetitions do not
  // push out other entries.
  void add_refused(HistoryEntry entry, const std::string& why);
  // Rows that could not be written remain due. `what` names them in the log.
  void note_saved(const std::string& what, const Result<void>& saved);

  const HubJob job;
  const JobResources resources;
  Coordinator coordinator;
  CoordinatorActions actions;  // of the roles; JobService performs them at the end of its call or turn
  Ticks clock{};
  bool begun = false;         // the epoch has begun
  bool restored = false;      // it continues after an earlier hub's death
  std::string config_text;    // the newest valid config; "": none
  std::string config_sha256;  // of it
  std::string broken_file;    // the error in a newer save, or ""
  bool write_back_allowed = true;
  std::optional<LastError> last_error;  // unset: no current error
  std::vector<std::string> warnings;    // of the config
  Ticks save_again{};                   // after a failed append to the history or the alerts

 private:
  ErrorSource last_error_source_ = ErrorSource::content;
  std::uint64_t errors_ = 0;
  std::map<std::string, std::string> save_errors_;  // of the newest append, by what
};

// Turns saves of the config file into plans, and writes `dynamic_on: false` back. In static mode it only
// notices edits. The hub's thread only.
class ConfigRole {
 public:
  explicit ConfigRole(JobState& state);

  // Watches the config file. In dynamic mode the epoch begins, or continues, when the file has been read.
  void open();
  // Tries a failed write-back again.
  void tick();
  void write_back(WriteBack due);
  ConfigService& file() { return file_; }
  // Says once in the log that static mode reads no edits.
  void log_static_mode();
  // The reason why dynamic_on was false at the start, if an earlier job has set it; else "".
  const std::string& off_since() const { return off_since_; }
  DiskReport& place() { return place_; }
  const DiskReport& place() const { return place_; }

 private:
  void on_content(ConfigService::Content content, const std::string& writer);
  void ignore_save_by(const std::string& writer, const FileContent& content);
  void adopt(const FileContent& content, PlanSource source);
  void begin(PlanPtr plan);
  void watch_static_config();
  void explain_off();
  void write_back_is_over();

  JobState& state_;
  ConfigService file_;
  DiskReport place_;
  bool static_mode_logged_ = false;
  std::string off_since_;
  std::optional<Config> first_config_;           // to find keys that a later config cannot change
  std::optional<WriteBack> pending_write_back_;  // a failed write-back
  Ticks next_write_back_{};
  Ticks write_back_pause_{};  // before that try; 0: the first try
};

// Lists, saves and publishes the alerts of the ranks, acts on them as `on_alert` says, and compares ranks
// that should hold the same values (AnomalyRankDivergence). The hub's thread only.
class AlertRole {
 public:
  explicit AlertRole(JobState& state);

  // Restores the list of an earlier hub of this epoch.
  void open();
  // Returns true if the message is of alerts or replicas.
  bool on_message(const Envelope& envelope);
  void tick();
  void save();
  CommandReply listed(const Command& command) const;
  void describe(Status& status) const;
  // True if the committed plan's config has alert rules; in static mode the job's config.
  bool has_rules() { return in_force() && !config_->alert.rules.empty(); }
  // That config, of the newest tick; none: no valid one.
  const std::shared_ptr<const Config>& config() const { return config_; }

 private:
  bool is_from_rank(const Envelope& envelope) const;
  void raise(Rank rank, const std::string& process_id, const AlertReport& report);
  void raise_orphans();
  void perform(ReplicaComparison::Actions actions);
  void send_to(Rank rank, Message message);
  const std::shared_ptr<const Config>& in_force();
  const Config::OnAlert* on_alert() {  // null: none
    return in_force() && config_->on_alert ? &*config_->on_alert : nullptr;
  }
  void capture_after(const Alert& alert, const Config::OnAlert& wanted);
  void capture_waiting();
  void drop_oldest_unsaved();
  const std::string& present_process(Rank rank) const {
    return state_.coordinator.membership().of(rank.value).hello.process_id;
  }

  JobState& state_;
  AlertHistory alerts_;
  std::vector<AlertHistory::Kept> unsaved_;  // at most AlertHistory::kMostKept
  AlertCommand command_;
  AlertTrigger capture_trigger_;
  std::optional<Alert> capture_waiting_;  // the first alert to start a capture after the open change
  ReplicaComparison replicas_;
  Ticks replicas_looked_at_{};
  UnraisedAlerts unraised_;
  std::shared_ptr<const Config> config_;
  std::string config_text_;  // of config_
};

// Carries out the commands of gradmonctl. A command sets a state and never toggles it. A repeated request id
// gets the same answer and changes nothing. The hub's thread only.
class CommandRole {
 public:
  // A command and the client to answer.
  struct Request {
    std::string peer;
    Command command;
  };

  CommandRole(JobState& state, ConfigRole& config) : state_(state), config_(config) {}

  // Returns false if the verb asks for the state of the job: status, history, config, alerts and targets.
  bool on_command(const Request& asked);
  // Answers with the status and the targets of all ranks.
  void list_targets(const Request& asked, Status status);
  void dry_run_ended(DryRunResult result);
  // If the file system hangs: proposes `off` without the file, and answers other commands.
  void tick();
  // Excludes abandoned edits: their disk may never respond.
  bool waits_for_edit() const;
  void note_refused(const Command& command, const std::string& why);
  void reply(const Request& asked, CommandReply reply) const {
    state_.resources.channels.reply(asked.peer, asked.command.request_id, std::move(reply));
  }

 private:
  // A request whose edit is under way.
  struct PendingEdit : Request {
    Ticks since{};
    bool given_up = false;  // answered or proposed without the file
  };
  // A dry run that waits for the ranks' answers, and the reply so far.
  struct DryRunRequest : Request {
    CommandReply reply;
    std::uint64_t number = 0;  // increases with each request
  };

  void cancel(const Request& asked);
  void evict(const Request& asked);
  CommandReply verdict_on(const std::string& request_id) const;
  bool carried_out(const std::string& request_id) const;
  void dry_run(const Request& asked);
  void ask_ranks(const Request& asked, CommandReply reply, PlanPtr plan);
  void change_config(const Request& asked);
  void on_edit_done(const Request& asked, ConfigService::Edited edited);
  void adopt_late_off(const Command& off, const FileContent& edited);
  void propose_without_file(const Request& asked, const std::string& why);
  void propose(const Request& asked, PlanSource source, std::optional<FileIdentity> file, std::string note);
  void answer(const Request& asked, CommandReply given);
  void refuse(const Request& asked, CommandOutcome outcome, std::string why) {
    answer(asked, failed_reply(outcome, std::move(why)));
  }

  JobState& state_;
  ConfigRole& config_;
  std::map<std::string, PendingEdit> pending_edits_;  // by request id
  std::map<std::string, CommandReply> answered_;      // by request id
  std::deque<std::string> answered_order_;
  std::map<std::string, DryRunRequest> dry_runs_;  // by request id
  std::uint64_t dry_runs_asked_ = 0;
};

// The lead hub's service for its job: it connects the coordinator with the config file, the commands,
// the alerts and the history. The hub's thread only.
class JobService {
 public:
  JobService(HubJob job, JobResources resources);

  // Dynamic mode: watches the config file. The epoch begins, or continues after `restored`, when the file
  // has been read.
  void open(const std::vector<LogEntry>& restored);
  void on_message(const Envelope& envelope);
  void on_command(const std::string& peer, Command command);
  // A client may not give this command: adds it to the history.
  void refuse(const Command& command, const std::string& why) { commands_.note_refused(command, why); }
  void tick(Ticks elapsed);
  // State of the whole job.
  Status status() const;
  bool has_alert_rules() { return alerts_.has_rules(); }
  const HubJob& job() const { return state_.job; }

  bool may_exit() const { return state_.coordinator.may_exit() && !commands_.waits_for_edit(); }
  bool busy() const { return state_.coordinator.busy() || commands_.waits_for_edit(); }
  void close();

 private:
  void perform(CoordinatorActions due);
  CommandReply config_in_force() const;
  std::vector<HistoryEntry> newest_history() const;
  void watch_output();
  void note_ranks();
  void save_history();
  void log_pending();
  void describe_static(Status& status) const;

  JobState state_;
  ForeignPeers foreign_;
  ConfigRole config_;
  AlertRole alerts_;
  CommandRole commands_;
  DiskReport output_place_;
  // Used by the thread of run_disk only: its watch owns the registry of the output directory.
  const std::shared_ptr<std::weak_ptr<JobRegistry>> output_jobs_ =
      std::make_shared<std::weak_ptr<JobRegistry>>();
  JobRegistry::Ranks ranks_ = JobRegistry::Ranks::live;
  Ticks history_saved_{};
  std::string logged_pending_;  // reason of the pending change that was logged last
};

}  // namespace gradmon
