// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "control/agree/committed_plans.h"
#include "control/agree/journal.h"
#include "control/agree/message.h"
#include "control/agree/overhead_budget.h"
#include "control/agree/plan_probe.h"
#include "control/agree/roster.h"

namespace gradmon {

// A plan has run to its end on all ranks: `dynamic_on` may be written back,
// where the file still is the save it came from.
struct WriteBack {
  Revision revision;
  FileIdentity file;
};

// What the coordinator wants done.
struct CoordinatorActions {
  std::vector<Letter> send;
  std::optional<Verdict> write;  // into the register; answer by on_register
  std::optional<WriteBack> write_back;
  std::vector<ProbeResult> probed;
  std::vector<std::string> log;  // lines for the owner of the job
  std::vector<std::string> warnings;

  CoordinatorActions& operator+=(CoordinatorActions other);
};

// The role rank 0 has besides being a member: orders revisions, asks, decides.
// Pure: called by one thread (the agent) with the time as a value.
class Coordinator {
 public:
  struct Job {
    std::string epoch;
    std::string process_id;  // author of its verdicts, and proposer
    std::string launcher_id;
    int world_size = 1;
    Step start_iteration;
    std::string run_id;
    WallTime started = 0;
    std::string nonce;
  };

  Coordinator(Job job, Roster::LivenessOf liveness_of);

  // The config has been read: the epoch starts on with this plan, or off. Ranks
  // that have said Hello before are answered now.
  CoordinatorActions begin(PlanPtr first, WallTime now);
  // A change by file, command or gradmon itself; valid. The newest waits while
  // one is open, the one it replaces is recorded as superseded.
  CoordinatorActions propose(PlanPtr plan, WallTime now);
  // Asks every rank what a valid plan would mean there, or (null) what it watches
  // now; the answer comes in `probed`, with this id.
  CoordinatorActions probe(std::string id, PlanPtr plan);
  CoordinatorActions on_letter(const Letter& letter, WallTime now);
  CoordinatorActions on_register(const tl::expected<Verdict, std::string>& verdict, WallTime now);
  CoordinatorActions tick(Ticks elapsed, WallTime now);
  // The write-back of a revision has ended: no more is to come of it.
  void write_back_ended(Revision revision);
  CoordinatorActions close();

  // Nothing to write back is outstanding, and every other rank has left.
  bool may_go() const;
  // Something is to be decided: ticks every 10 ms, else every 100.
  bool busy() const { return open_.has_value() || waiting_.has_value() || probe_.busy(); }
  // The newest plan, in force, committed, open or waiting, is off or has ended.
  bool newest_is_off() const;
  PlanPtr newest_plan() const;  // null: none yet
  // Where verdicts are to be written; known before there is one.
  Home home() const { return last_.home; }
  Status status() const;  // what it knows of it; file and errors are the caller's
  Journal& journal() { return journal_; }
  const Journal& journal() const { return journal_; }
  bool applied_by_all(Revision revision) const;

 private:
  struct Proposal {
    PlanPtr plan;
    Journal::Key entry = 0;
    int attempts = 0;        // that found a Ready missing
    std::int64_t scale = 1;  // of the lookahead
    Ticks not_before{};
    WallTime since = 0;
  };
  struct Open {
    Revision revision;
    Proposal proposal;
    std::int64_t lookahead = 1;
    Ticks opened{};
    Ticks last_sent{};
    std::optional<Verdict> verdict;  // ours, on its way into the register
    bool writing = false;
    Ticks wrote{};
    bool all_ready = false;
    bool rejected = false;  // by some rank
    int first_missing = 0;  // every rank below it has answered
  };
  void answer_hello(Rank rank, const Hello& hello, CoordinatorActions& actions);
  void enqueue(Proposal proposal, CoordinatorActions& actions, WallTime now);
  CoordinatorActions advance(WallTime now);
  void settle_home(CoordinatorActions& actions);
  void tell_last_word(CoordinatorActions& actions) const;
  void open_waiting(CoordinatorActions& actions, WallTime now);
  void send_prepare(CoordinatorActions& actions, bool everyone);
  void decide(CoordinatorActions& actions);
  bool still_incomplete();
  std::optional<Verdict> verdict_now();
  Verdict abort(AbortReason reason, std::string text) const;
  void close_open(const Verdict& verdict, CoordinatorActions& actions, WallTime now);
  void retry(const Verdict& verdict, CoordinatorActions& actions, WallTime now);
  void note_progress(Roster::Seat& seat, Rank rank, const Progress& progress, CoordinatorActions& actions,
                     WallTime now);
  void note_applied(Roster::Seat& seat, Rank rank, const Applied& applied, CoordinatorActions& actions);
  void look_for_end(CoordinatorActions& actions);
  void ask_around(CoordinatorActions& actions);
  void resync(Rank rank, Revision missed, CoordinatorActions& actions, WallTime now);
  void keep_budget(CoordinatorActions& actions, WallTime now);
  std::shared_ptr<Plan> continued(Cause cause, std::string by) const;
  Letter letter_to(int rank, Message message) const;
  std::int64_t lookahead_for(const Proposal& proposal) const;
  Ticks doubt_after() const;
  std::optional<Pending> pending() const;
  std::vector<RankStatus> describe_ranks() const;

  // Constant after construction.
  const Job job_;

  Roster roster_;
  PlanProbe probe_;
  Journal journal_;
  Ticks clock_{};
  bool begun_ = false;
  bool starts_on_ = false;
  std::vector<Letter> early_;  // said before begin()
  Revision next_{1};
  std::optional<Proposal> waiting_;
  std::optional<Open> open_;
  LastWord last_;
  CommittedPlans committed_;
  OverheadBudget budget_;
  std::string refusal_;  // why the newest change did not come about
  Revision resynced_;
  double decide_ms_ = 10;    // moving mean from Prepare to a commit: chooses the lookahead
  double patience_ms_ = 10;  // the same, doubled by each abort: how soon a rank may doubt
};

}  // namespace gradmon
