// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "control/agree/decision_log.h"
#include "control/agree/dry_run.h"
#include "control/agree/journal.h"
#include "control/agree/membership.h"
#include "control/agree/message.h"
#include "control/agree/overhead_budget.h"
#include "control/agree/plan.h"

namespace gradmon {

struct CommittedPlan {
  Verdict verdict;
  Schedule schedule;
  bool announced = false;  // the job's log says that a rank has applied it
};

// The committed plans from the one that Membership::status_member() runs to the newest. Detects when the
// newest plan has ended on all ranks. One thread.
class CommittedPlans {
 public:
  // A plan has ended on all ranks; `dynamic_on` may be written back.
  struct End {
    Revision revision;
    Step last;                         // the last collected step; -1: none
    std::vector<int> silent;           // ranks that did not report the end in time
    std::optional<FileIdentity> file;  // the plan's save of the config file; none: nothing to write back
  };

  void add(const Verdict& commit);
  // Returns true if the plan is known and this is the first call for it.
  bool announce(Revision revision);
  void forget_before(Revision revision);
  const CommittedPlan* find(Revision revision) const;  // null: unknown, or no longer kept
  const CommittedPlan* newest() const;                 // null: none yet

  // Returns the end of the newest plan once: when every rank has reported the end, or 10 s after every rank
  // that still makes steps has passed it. Returns none if all ranks left before they reached the end.
  std::optional<End> check_ended(const Membership& members, Ticks now);
  bool ended() const { return ended_; }  // true: the newest plan has ended
  void write_back_ended(Revision revision);
  bool write_back_outstanding() const { return ended_ && !written_back_; }

 private:
  std::vector<CommittedPlan> plans_;  // by rising revision
  // The state of the newest plan.
  bool ended_ = false;
  bool written_back_ = false;
  std::optional<Ticks> passed_;  // the time when every rank that still makes steps had passed the end
};

// A plan has ended on all ranks. `dynamic_on: false` may be written back if the file is still the
// save that the plan came from.
struct WriteBack {
  Revision revision;
  FileIdentity file;
};

// One message to several members; encoded once.
struct Outgoing {
  using To = std::vector<std::pair<int, std::uint64_t>>;
  To to;  // rank and incarnation
  Message message;
};

// Actions that the caller must carry out for the coordinator.
struct CoordinatorActions {
  std::vector<Outgoing> send;
  std::optional<WriteBack> write_back;
  std::vector<DryRunResult> dry_runs;
  std::vector<std::string> log;  // lines for the owner of the job
  std::vector<std::string> warnings;

  CoordinatorActions& operator+=(CoordinatorActions other);
  bool empty() const {
    return send.empty() && !write_back && dry_runs.empty() && log.empty() && warnings.empty();
  }
};

// The lead hub's role: orders revisions, asks the members, decides. Pure; one thread; the caller
// passes the time.
class Coordinator {
 public:
  struct Job : JobIdentity {
    int world_size = 1;
  };

  // `log` must outlive the coordinator.
  Coordinator(Job job, DecisionLog& log);

  // Replays the log of an earlier coordinator of this epoch; call it before begin(). Aborts the revision
  // that was open. Every member counts as heard now.
  CoordinatorActions restore(const std::vector<LogEntry>& entries, WallTime now);
  // The config has been read; null: the file is missing or broken. A new epoch starts on if this plan is on.
  // A restored epoch proposes the plan only if the newest known plan is from another save of the file.
  // Answers the ranks that have already said Hello.
  CoordinatorActions begin(PlanPtr from_file, WallTime now);
  // Proposes a valid plan that comes from the file, a command or gradmon itself. While a revision is open the
  // newest proposal waits, and the one it replaces is recorded as superseded. gradmon's own
  // proposals never replace the user's. A plan that is off withdraws the open revision.
  CoordinatorActions propose(PlanPtr plan, WallTime now);
  // True if capture() would propose: a plan is on and has not ended, it collects any step and is no capture
  // itself, and no change is open or waiting.
  bool may_capture() const;
  // Proposes `richer`, which the caller has made of the committed plan's config, for its collect_times steps.
  // At its end, proposes the present plan again for its remaining steps. Requires may_capture().
  CoordinatorActions capture(std::shared_ptr<Plan> richer, WallTime now);
  // Withdraws the waiting or open proposal. Returns false without a proposal.
  bool cancel(const std::string& by, CoordinatorActions& actions, WallTime now);
  // Returns false if the rank is no member.
  bool evict(Rank rank, const std::string& by, CoordinatorActions& actions);
  // Asks every rank how many targets a valid plan would match there. With a null plan, asks for the targets
  // that the rank watches now. The answers are returned later in `dry_runs`, with this id.
  CoordinatorActions dry_run(std::string id, PlanPtr plan);
  CoordinatorActions on_message(const Envelope& envelope, WallTime now);
  // Like on_message(), but decides only at the next tick. For many messages at once, because each decision
  // inspects every member.
  CoordinatorActions receive(const Envelope& envelope, WallTime now);
  // The open or waiting proposal and the ranks that it waits for.
  std::optional<Pending> pending() const;
  // `elapsed` since the last tick; more than one second counts as one, so that a pause of this
  // process does not count as silence of its members.
  CoordinatorActions tick(Ticks elapsed, WallTime now);
  // Call it when a write-back is done, has failed or is given up. May be called again for that revision.
  void write_back_ended(Revision revision);

  // True if no write-back is outstanding and no rank takes part any more.
  bool may_exit() const;
  // True if a decision is pending. If so, call tick() every 10 ms, else every 100 ms.
  bool busy() const { return open_.has_value() || waiting_.has_value() || dry_runs_.busy(); }
  // True if the newest plan (in force, committed, open or waiting) is off or has ended.
  bool newest_is_off() const;
  PlanPtr newest_plan() const;  // null: none yet
  // Call it when the user no longer asks for the refused plan: the status stops naming the reason.
  void forget_refusal() { refusal_.clear(); }
  // The newest committed plan; null: none.
  PlanPtr committed_plan() const { return last_.commit ? last_.commit->plan : nullptr; }
  Status status() const;  // without the file and its errors, which the caller adds
  Journal& journal() { return journal_; }
  const Journal& journal() const { return journal_; }
  bool applied_by_all(Revision revision) const;
  const Membership& membership() const { return members_; }

 private:
  struct Proposal {
    PlanPtr plan;
    Journal::Key entry = 0;
    int attempts = 0;        // aborted so far
    std::string last_abort;  // the reason of the last abort; "": none
    Ticks not_before{};
    WallTime since = 0;
    std::vector<int> missed;  // ranks whose answer was missing in the last attempt
    bool restored = false;    // open when the previous coordinator died
  };
  // Offering: the plan is sent, no rank has promised anything. Promising: ranks may wait.
  enum class Stage { offering, promising };
  enum class Recipients { all, unanswered };
  struct Open {
    Revision revision;
    Proposal proposal;
    Stage stage = Stage::offering;
    std::int64_t lookahead = 1;
    Ticks opened{};         // when this stage began
    Ticks last_sent{};      // when this stage's question was last sent
    int first_missing = 0;  // every rank below it has answered this stage
    bool objected = false;  // some rank has answered Reject or Busy
  };
  using RankMember = Membership::Member;

  void restore_end(Revision revision);
  void answer_hello(Rank rank, const Hello& hello, CoordinatorActions& actions, WallTime now);
  void note_earlier_epoch(const Hello& hello);
  void inherit(const Hello& hello, CoordinatorActions& actions, WallTime now);
  void catch_up(Revision closed, CoordinatorActions& actions, WallTime now);
  void adopt_unlogged_off(const Verdict& off, CoordinatorActions& actions);
  void propose_inherited(CoordinatorActions& actions, WallTime now);
  void stop_waiting_for_absent();
  void finish_entry(const Proposal& proposal, const std::string& verdict, const std::string& why);
  void enqueue(Proposal proposal, CoordinatorActions& actions, WallTime now);
  CoordinatorActions advance(WallTime now);
  bool may_open(const Proposal& proposal) const;
  std::string why_not_ready() const;
  void open_waiting(CoordinatorActions& actions, WallTime now);
  void ask(CoordinatorActions& actions, Recipients recipients);
  void promise_stage(CoordinatorActions& actions);
  void decide(CoordinatorActions& actions, WallTime now);
  Ticks ask_every() const;
  bool answered(const RankMember& member) const;
  std::vector<int> missing();
  std::optional<Verdict> objection() const;
  std::optional<Verdict> no_match() const;
  Verdict commit() const;
  Verdict abort(AbortReason reason, std::string text) const;
  void conclude(Verdict verdict, CoordinatorActions& actions, WallTime now);
  void take_commit(const Verdict& commit);
  void close_open(const Verdict& verdict, CoordinatorActions& actions, WallTime now);
  void retry(const Verdict& verdict, CoordinatorActions& actions, WallTime now);
  void withdraw_open(const std::string& why, CoordinatorActions& actions, WallTime now);
  void forget_waiting(const std::string& verdict, const std::string& why);
  void send_known_decisions(CoordinatorActions& actions) const;
  void note_progress(RankMember& member, Rank rank, const Progress& progress, CoordinatorActions& actions,
                     WallTime now);
  void note_applied(RankMember& member, Rank rank, const Applied& applied, CoordinatorActions& actions);
  void answer_non_member(const Envelope& envelope, CoordinatorActions& actions) const;
  void note_departure(int rank, CoordinatorActions& actions);
  void check_ended(CoordinatorActions& actions);
  void check_silent_ranks(CoordinatorActions& actions);
  void advance_dry_runs(CoordinatorActions& actions);
  void resync(CoordinatorActions& actions, WallTime now);
  void keep_budget(CoordinatorActions& actions, WallTime now);
  void return_from_capture(CoordinatorActions& actions, WallTime now);
  std::shared_ptr<Plan> copy_with_remaining_steps(Cause cause, std::string by) const;
  void send(int rank, Message message, CoordinatorActions& actions) const;
  bool note(const LogEntry& entry, CoordinatorActions& actions);
  std::int64_t lookahead_for(const Plan& plan) const;
  Ticks prepare_timeout() const;  // the longest wait for the answers to Prepare
  std::string awaited(int rank) const;
  std::vector<RankStatus> describe_ranks() const;

  // Constant after construction.
  const Job job_;
  DecisionLog& log_;

  Membership members_;
  DryRuns dry_runs_;
  Journal journal_;
  Ticks clock_{};
  bool begun_ = false;
  bool starts_on_ = false;
  std::vector<Envelope> early_;  // received before begin()
  Revision next_{1};
  std::string log_error_;  // of the newest append to the log; "": none
  std::optional<Proposal> waiting_;
  std::optional<Open> open_;
  KnownDecisions last_;
  CommittedPlans committed_;
  Revision in_force_;  // the newest that any rank has reported as applied
  OverheadBudget budget_;
  Revision end_logged_;               // the newest whose WrittenBackEntry is in the log
  Revision returned_;                 // the newest capture whose return was proposed
  bool restored_ = false;             // from the decision log
  bool log_lost_ = false;             // a rank has been in an earlier epoch, whose log is lost
  std::int64_t order_ = 0;            // of this epoch: its start in ms, or more if the clock was set back
  std::optional<Verdict> inherited_;  // newest commit that a rank still holds from an epoch whose log is lost
  std::optional<Step> inherited_effective_;  // latest effective step that a rank has reported
  bool inherited_proposed_ = false;
  PlanPtr from_file_;             // as passed to begin()
  std::string refusal_;           // why the newest change was not committed
  std::set<int> ranks_to_start_;  // ranks that have joined while a plan was on
  double decide_ms_ = 1;          // moving mean of the time from Prepare to commit; sets the lookahead
};

}  // namespace gradmon
