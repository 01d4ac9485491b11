// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "control/agree/decision_log.h"
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

// The dry runs under way. Each asks all ranks how many targets a plan would match (without a plan: how many
// they watch now). A dry run changes nothing. It ends when all present ranks have answered, or after two
// seconds. One thread.
class DryRuns {
 public:
  // Does nothing if a dry run with that id is under way. Above sixteen the oldest is dropped without
  // an answer.
  void ask(std::string id, PlanPtr plan, Ticks now);
  void on_dry_run_answer(Rank rank, const DryRunAnswer& answer);
  // The questions that are due now, each with at least one rank to ask.
  std::vector<std::pair<std::vector<int>, DryRun>> due(const Membership& members, Ticks now);
  // Removes and returns the dry runs that have ended.
  std::vector<DryRunResult> take_ended(const Membership& members, Ticks now);
  bool busy() const { return !open_.empty(); }

 private:
  struct OpenDryRun {
    std::string id;
    PlanPtr plan;
    Ticks begun{};
    std::optional<Ticks> asked;  // last time
    std::map<int, DryRunAnswer> answers;
  };

  std::vector<OpenDryRun> open_;  // oldest first
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

// The state that the roles of a coordinator share. One thread.
struct Agreement {
  Agreement(JobIdentity of, DecisionLog& decisions)
      : job(std::move(of)), log(decisions), members(job), order(job.started) {}

  // Appends to the decision log. Warns of a new error.
  bool note(const LogEntry& entry);
  void send(int rank, Message message);
  void send_known_decisions();
  void take_commit(const Verdict& commit);
  // The reason why a plan that is on cannot be opened, or "".
  std::string why_not_ready() const;
  // True if the newest committed plan is on and has not ended.
  bool collects() const { return last.commit && last.commit->plan->on && !committed.ended(); }

  // Constant after construction.
  const JobIdentity job;
  DecisionLog& log;

  Ticks clock{};
  WallTime now = 0;        // of the present call
  CoordinatorActions out;  // of the present call
  Membership members;
  Journal journal;
  bool begun = false;
  Revision next{1};
  KnownDecisions last;
  CommittedPlans committed;
  Revision in_force;  // the newest that any rank has reported as applied
  OverheadBudget budget;
  std::set<int> ranks_to_start;             // ranks that have joined while a plan was on
  std::string refusal;                      // why the newest change was not committed
  std::string log_error;                    // of the newest append to the log; "": none
  bool log_lost = false;                    // a rank has been in an earlier epoch, whose log is lost
  std::optional<Step> inherited_effective;  // latest effective step that a rank has reported from it
  std::int64_t order = 0;  // of this epoch: its start in ms, or more if the clock was set back
};

// The change that is open and the one that waits: asks the members, and decides.
class Proposals {
 public:
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

  explicit Proposals(Agreement& state) : state_(state) {}

  void propose(PlanPtr plan);
  bool cancel(const std::string& by);
  // Opens, asks and decides what is due.
  void advance();
  // A member has answered the open revision.
  void on_answer(Membership::Member& member, const Message& message);
  // The member has joined: it must answer, too. Another incarnation sent its earlier answers.
  void on_joined(Membership::Member& member);
  // If the last attempt missed this rank's answer, the retry need not wait any longer.
  void on_heard(int rank);
  void on_departed();
  // This revision was open when the previous coordinator died. `entry`: of the history.
  void restore(const OfferedEntry& open, HistoryEntry entry);
  // A rank knows the verdicts up to `closed`. The log may lack some, if the previous coordinator could not
  // append them. Their revision numbers are not given again.
  void catch_up(Revision closed);
  void forget_waiting(const std::string& verdict, const std::string& why);

  bool busy() const { return open_ || waiting_; }
  const Proposal* waiting() const { return waiting_ ? &*waiting_ : nullptr; }
  PlanPtr newest_plan() const;
  bool is_open() const { return open_.has_value(); }
  std::optional<Pending> describe() const;

 private:
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

  void open_waiting();
  void ask(Recipients recipients);
  void promise_stage();
  void decide();
  Ticks ask_every() const;
  bool answered(const Membership::Member& member) const;
  std::vector<int> missing();
  std::optional<Verdict> objection() const;
  std::optional<Verdict> no_match() const;
  Verdict commit() const;
  Verdict abort(AbortReason reason, std::string text) const;
  void conclude(Verdict verdict);
  void close_open(const Verdict& verdict);
  void retry(const Verdict& verdict);
  void finish_entry(const Proposal& proposal, const std::string& verdict, const std::string& why);
  std::int64_t lookahead_for(const Plan& plan) const;
  Ticks prepare_timeout() const;  // the longest wait for the answers to Prepare
  std::string awaited(int rank) const;

  Agreement& state_;
  std::optional<Proposal> waiting_;
  std::optional<Open> open_;
  double decide_ms_ = 1;  // moving mean of the time from Prepare to commit; sets the lookahead
};

// gradmon's own changes: for ranks that hold a plan of an epoch whose log is lost or have rejoined, for the
// budget, for captures. And the end of plans.
class OwnChanges {
 public:
  OwnChanges(Agreement& state, Proposals& proposals) : state_(state), proposals_(proposals) {}

  // The plan of the file, as read at the beginning.
  void begin(PlanPtr from_file) { from_file_ = std::move(from_file); }
  void note_earlier_epoch(const Hello& hello);
  void on_joined(const Hello& hello);
  // Proposes the newest plan that a rank still holds, with the steps that it had left, once all ranks can be
  // asked. Skips it if the file has been saved or a change has been requested since.
  void propose_inherited();
  bool can_capture() const;
  void capture(std::shared_ptr<Plan> richer);
  // Proposes the other changes that are due.
  void propose_due();
  void check_ended();
  void end_write_back(Revision revision);
  void restore_end(Revision revision);

 private:
  void adopt_unlogged_off(const Verdict& off);
  void resync();
  void keep_budget();
  void return_from_capture();
  std::shared_ptr<Plan> copy_with_remaining_steps(Cause cause, std::string by) const;

  Agreement& state_;
  Proposals& proposals_;
  PlanPtr from_file_;
  std::optional<Verdict> inherited_;  // newest commit that a rank still holds from an earlier epoch
  bool inherited_proposed_ = false;
  Revision end_logged_;  // the newest whose WrittenBackEntry is in the log
  Revision returned_;    // the newest capture whose return was proposed
};

// The lead hub's role: orders revisions, asks the members, decides. Pure; one thread; the caller
// passes the time.
class Coordinator {
 public:
  // `log` must outlive the coordinator.
  Coordinator(JobIdentity job, DecisionLog& log)
      : state_(std::move(job), log), proposals_(state_), own_(state_, proposals_) {}
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

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
  bool may_capture() const { return own_.can_capture(); }
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
  std::optional<Pending> pending() const { return proposals_.describe(); }
  // `elapsed` since the last tick; more than one second counts as one, so that a pause of this
  // process does not count as silence of its members.
  CoordinatorActions tick(Ticks elapsed, WallTime now);
  // Call it when a write-back is done, has failed or is given up. May be called again for that revision.
  void write_back_ended(Revision revision) { own_.end_write_back(revision); }

  // True if no write-back is outstanding and no rank takes part any more.
  bool may_exit() const;
  // True if a decision is pending. If so, call tick() every 10 ms, else every 100 ms.
  bool busy() const { return proposals_.busy() || dry_runs_.busy(); }
  // True if the newest plan (in force, committed, open or waiting) is off or has ended.
  bool newest_is_off() const;
  PlanPtr newest_plan() const;  // null: none yet
  // Call it when the user no longer asks for the refused plan: the status stops naming the reason.
  void forget_refusal() { state_.refusal.clear(); }
  // The newest committed plan; null: none.
  PlanPtr committed_plan() const { return state_.last.commit ? state_.last.commit->plan : nullptr; }
  Status status() const;  // without the file and its errors, which the caller adds
  Journal& journal() { return state_.journal; }
  const Journal& journal() const { return state_.journal; }
  bool applied_by_all(Revision revision) const;
  const Membership& membership() const { return state_.members; }

 private:
  void advance();
  CoordinatorActions take_actions() { return std::exchange(state_.out, {}); }
  void hear(const Envelope& envelope);
  void on_hello(Rank rank, const Hello& hello);
  void answer_non_member(const Envelope& envelope);
  void note_departure(int rank);
  void note_progress(Membership::Member& member, Rank rank, const Progress& progress);
  void note_applied(Membership::Member& member, Rank rank, const Applied& applied);
  void advance_dry_runs();
  std::vector<RankStatus> describe_ranks() const;

  Agreement state_;
  Proposals proposals_;
  OwnChanges own_;
  DryRuns dry_runs_;
  std::vector<Envelope> early_;  // received before begin()
  bool starts_on_ = false;
  bool restored_ = false;  // from the decision log
};

}  // namespace gradmon
