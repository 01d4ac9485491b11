// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
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
#include "control/host/child_process.h"
#include "control/hub/config_service.h"
#include "control/hub/disk_thread.h"
#include "control/log.h"
#include "control/wire/command.h"
#include "control/wire/messages.h"
#include "control/wire/plan_source.h"

namespace gradmon {

// The reason of a config that collects nothing (collects_anything()), and the keys that change it.
inline constexpr const char* kNoKind =
    "the config enables no kind of row (set wg_distribution, param_distribution, xy_distribution, ...)";

// Processes that send to the lead hub but do not belong to its job: processes of an earlier launch, and
// processes of another launch that say Hello. Status and log only name them. One thread; the caller passes
// the time.
class ForeignPeers {
 public:
  ForeignPeers(std::string epoch, std::string launch_id);

  // Returns a log line if the sender is foreign and was not heard before.
  std::optional<std::string> hear(const Envelope& envelope, Ticks now);
  // Status lines for those heard within the last ten seconds.
  std::vector<std::string> heard(Ticks now) const;

 private:
  std::string name_of(const Envelope& envelope) const;  // "": of this job
  void forget_silent(Ticks now);

  // Constant after construction.
  const std::string epoch_;
  const std::string launch_id_;

  std::map<std::string, Ticks> last_heard_;  // by line; bounded
};

// Runs the program of `on_alert.exec` when alerts arrive: one at a time, at most every kLeastPause, each for
// at most kTimeLimit. writers/alerts/ALERTS.md describes the program's input. The lead hub's thread only.
class AlertCommand {
 public:
  static constexpr Ticks kLeastPause{10'000};
  static constexpr Ticks kTimeLimit{30'000};

  // Passed to the program.
  struct Job {
    std::string name;
    std::string launch_id;
    std::string output_dir;
    std::string config_path;
  };

  explicit AlertCommand(Job job) : job_(std::move(job)) {}

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

  const Job job_;
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
  bool is_unresponsive() const;
  std::set<std::string> conditions() const;

  const std::string place_;
  const DiskThread& disk_;
  std::vector<std::string> others_;
  std::vector<std::string> notes_;
  std::set<std::string> reported_;
};

// The lead hub's service for its job: it connects the coordinator with the config file, the commands
// and the history. The hub's thread only.
class JobService {
 public:
  // Constant over the job's life.
  struct Job : Coordinator::Job {
    std::string output_dir;
    LeadJob lead;
  };

  // The objects that the service uses; all outlive it. Each disk has its own thread, so that a hanging file
  // system delays nothing else.
  struct Dependencies {
    DiskThread& config_disk;
    DiskThread& run_disk;
    DecisionLog& log;
    std::shared_ptr<Mailbox> mailbox;
    std::function<void(Outgoing)> send;
    std::function<void(const std::string& peer, const Command&, const CommandReply&)> reply;
    std::function<void(LogLevel, const std::string&)> tell;  // writes a line into rank 0's log
    std::function<void(const std::vector<Alert>&)> publish;  // to subscribers; never waits
  };

  JobService(Job job, Dependencies dependencies);

  // Dynamic mode: watches the config file. The epoch begins, or continues after `restored`, when the file
  // has been read.
  void open(const std::vector<LogEntry>& restored);
  void on_message(const Envelope& envelope);
  void on_command(const std::string& peer, const Command& command);
  // Adds a refused command to the history.
  void note_refused(const Command& command, const std::string& why);
  void tick(Ticks elapsed);
  // State of the whole job.
  Status status() const;
  // True if the committed plan's config has alert rules; in static mode the job's config.
  bool has_alert_rules() { return alerting().rules; }
  const Job& job() const { return job_; }

  bool may_exit() const { return coordinator_.may_exit() && !waits_for_edit(); }
  bool busy() const { return coordinator_.busy() || waits_for_edit(); }
  void close();

 private:
  // The config in force and its alert rules.
  struct Alerting {
    bool rules = false;       // it has some
    bool divergence = false;  // one of them is AnomalyRankDivergence
    std::optional<Config::OnAlert> on_alert;
    std::shared_ptr<const Config> config;  // null: no valid config
  };

  void perform(CoordinatorActions actions);
  void on_content(ConfigService::Content content, const std::string& writer);
  void ignore_save_by(const std::string& writer, const FileContent& content);
  void watch_output();
  void note_ranks();
  void watch_static_config();  // static mode
  void log_static_mode();      // once
  void explain_off();          // at the start
  void adopt(const FileContent& content, PlanSource source);
  void write_back(WriteBack due);  // by value: it may be pending_write_back_
  void write_back_is_over();
  void cancel(const std::string& peer, const Command& command);
  void evict(const std::string& peer, const Command& command);
  bool carried_out(const std::string& request_id) const;
  void change_config(const std::string& peer, const Command& command);
  void adopt_late_off(const Command& off, const ConfigService::Edited& edited);
  void on_edit_done(const std::string& peer, const Command& command, ConfigService::Edited edited);
  void propose_without_file(const std::string& peer, const Command& command, const std::string& why);
  void propose(const std::string& peer, const Command& command, PlanSource source,
               std::optional<FileIdentity> file, std::string note);
  void answer(const std::string& peer, const Command& command, CommandReply reply);
  std::vector<HistoryEntry> newest_history() const;
  void carry_out(const std::string& peer, const Command& command);
  void add_refused(HistoryEntry entry, const std::string& why);
  void note_refused_edit(const std::string& why);
  CommandReply verdict_on(const std::string& request_id) const;
  CommandReply config_in_force() const;
  void dry_run(const std::string& peer, const Command& command);
  bool is_from_rank(const Envelope& envelope) const;
  void on_alerts(const Envelope& envelope, const AlertReport& report);
  void raise(Rank rank, const std::string& process_id, const AlertReport& report);
  void raise_orphans();
  void on_replicas(const Envelope& envelope);
  void perform(ReplicaComparison::Actions actions);
  void send_to(Rank rank, Message message);
  std::vector<std::string> replica_warnings() const;
  void describe_replicas(Status& status) const;
  CommandReply listed_alerts(const Command& command) const;
  void count_alerts(Status& status) const;
  const Alerting& alerting();
  void capture_after(const Alert& alert, const Config::OnAlert& wanted);
  void capture_waiting();
  void refuse_static_capture();
  void list_targets(const std::string& peer, const Command& command);
  void ask_ranks(const std::string& peer, const Command& command, CommandReply reply, PlanPtr plan);
  void dry_run_ended(DryRunResult result);
  // The source of an error: the content of the config, or writing back into it.
  enum class ErrorSource { content, write_back };
  void note_error(ErrorSource source, std::string text);
  void clear_error(ErrorSource source);
  void tell(LogLevel level, const std::string& text) const;
  void note_warnings(std::vector<std::string> warnings);
  void save_history();
  void read_earlier_alerts();
  void save_alerts();
  void drop_oldest_unsaved_alerts();
  void note_saved(const std::string& what, const tl::expected<void, std::string>& saved);

  void check_pending_edits();
  bool waits_for_edit() const;  // excludes abandoned edits: their disk may never respond
  void log_pending();
  void describe_static(Status& status) const;

  // Constant after construction.
  const Job job_;
  const Dependencies dependencies_;

  Coordinator coordinator_;
  ForeignPeers foreign_;
  AlertHistory alerts_;
  std::vector<AlertHistory::Kept> unsaved_alerts_;  // at most AlertHistory::kMostKept
  AlertCommand alert_command_;
  AlertTrigger capture_trigger_;
  std::optional<Alert> capture_waiting_;  // the first alert to start a capture after the open change
  ReplicaComparison replicas_;
  Ticks replicas_looked_at_{};
  UnraisedAlerts unraised_;
  std::string alerting_text_;  // the config text of alerting_
  Alerting alerting_;
  Ticks clock_{};
  Ticks history_saved_{};
  Ticks save_again_{};                              // after a failed append
  std::map<std::string, std::string> save_errors_;  // of the newest append to the history and the alerts
  ConfigService config_;
  // Used by the thread of run_disk only: its watch owns the registry of the output directory.
  const std::shared_ptr<std::weak_ptr<JobRegistry>> output_jobs_ =
      std::make_shared<std::weak_ptr<JobRegistry>>();
  JobRegistry::Ranks ranks_ = JobRegistry::Ranks::live;
  DiskReport config_place_;
  DiskReport output_place_;
  bool begun_ = false;
  bool restored_ = false;            // the epoch continues after an earlier hub's death
  bool static_mode_logged_ = false;  // logged already that edits are not read
  std::string adopted_text_;         // the last valid config
  std::string adopted_sha256_;
  std::string broken_file_;  // the error in a newer save, or ""
  std::string off_since_;    // why dynamic_on was false at the start, if an earlier job has set it; else ""
  bool write_back_allowed_ = true;
  std::optional<Config> first_config_;   // to find keys that a later config cannot change
  std::optional<LastError> last_error_;  // unset: no current error
  ErrorSource last_error_source_ = ErrorSource::content;
  std::uint64_t errors_ = 0;
  std::vector<std::string> warnings_;
  // Requests whose edit is under way.
  struct PendingEdit {
    std::string peer;
    Command command;
    Ticks since{};
    bool given_up = false;  // answered or proposed without the file
  };
  std::map<std::string, PendingEdit> pending_edits_;  // by request id
  std::optional<WriteBack> pending_write_back_;       // a failed write-back
  Ticks next_write_back_{};
  Ticks write_back_pause_{};                      // before that try; 0: the first try
  std::string logged_pending_;                    // reason of the pending change that was logged last
  std::map<std::string, CommandReply> answered_;  // by request id
  // A dry run that waits for the ranks' answers: the client to answer, and the reply so far.
  struct DryRunRequest {
    std::string peer;
    Command command;
    CommandReply reply;
    std::uint64_t number = 0;  // increases with each request
  };
  std::map<std::string, DryRunRequest> dry_runs_;  // by request id
  std::uint64_t dry_runs_asked_ = 0;
  std::deque<std::string> answered_order_;
};

}  // namespace gradmon
