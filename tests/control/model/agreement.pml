// SPDX-License-Identifier: Apache-2.0
// The agreement of control/agree in Promela: coordinators with a decision log, members
// with leases, gates. What is modelled, how far, and what is atomic: README.md.
//
// A message is a fact: once said it may be received at any later time, any number
// of times, or never. That is loss, doubling, delay and reordering at once.
//
// N ranks run the steps START to S; each coordinator opens at most R revisions, each
// on or off. Options (-D):
// NEAR        fences are one step beyond the step begun; without it one or two
// ON_ONLY     no plan is off
// GAPS        a lease that has run out unseen may be renewed
// COUPLED     a step ends only when all living ranks have begun it
// HEARD_LATE  the coordinator does not know the last step of a member that it drops
// CRASH       the last rank's process ends once, at any point; a new one comes
// RESTARTS    the coordinator dies once, at any point, and comes back with its log
// RECONNECTS  a rank may lose its connection and say Hello again
// EVICTS      the last rank may be evicted
// STARTS_ON   the epoch begins with an implied promise on every rank
// EPOCHS 2    a second hub leads, without the log; the first one may live or not
// PROPOSALS   so many changes, the last one an off; without it any change, any time
// QUIET       no lease runs out, no patience ends
// SILENT      bit i: rank i is never heard
// DEAD_LEAD   the coordinator is gone once it has asked
// MUTANT_…    one thing left out or done wrong; rows.txt says which property it breaks

#ifndef N
#define N 2
#endif
#ifndef R
#define R 2
#endif
#ifndef S
#define S 4
#endif
#ifndef EPOCHS
#define EPOCHS 1
#endif
#ifndef SILENT
#define SILENT 0
#endif

#define NEVER 31
#define START 0
#define ALL_RANKS ((1 << N) - 1)
#define BIT(i) (1 << (i))
#define MORE(a, b) ((a) > (b) -> (a) : (b))
#define LESS(a, b) ((a) < (b) -> (a) : (b))

// --- Revisions. Coordinator e numbers its own e * R + 1 on. ---
#if EPOCHS == 2  // the second coordinator opens one
#define REVISIONS (R + 1)
#define HIGHEST(e) ((e) == 0 -> R : R + 1)
#else
#define REVISIONS R
#define HIGHEST(e) R
#endif
#define BASE(e) ((e) * R)
#define NOTHING 0
#define ABORT 1
#define COMMIT 2  // COMMIT + effective
byte verdict[5];
short is_off;     // bit r: the plan of revision r is off
#define OFF(r) ((is_off & BIT(r)) != 0)
#define IS_COMMIT(r) (verdict[r] >= COMMIT)
#define EFFECTIVE(r) (verdict[r] - COMMIT)
#define NEWEST(e, c) NEWEST_OF(BASE(e), HIGHEST(e), c)
#define OWN(r, b, t, c, else_) ((r) > (b) && (r) <= (t) && (r) <= (c) && (r) <= REVISIONS && IS_COMMIT(r) -> (r) : (else_))
#define NEWEST_OF(b, t, c) OWN(4, b, t, c, OWN(3, b, t, c, OWN(2, b, t, c, OWN(1, b, t, c, 0))))

// --- The ranks: what their trainers, gates and members know. ---
byte current[N];       // the step begun last
bool inside[N];        // and not yet ended
byte gone;             // bit i: has left, or its process is dead for good
byte fence[N] = NEVER; // the step not to be begun
byte open_[N];         // the revision promised, 0: none
byte closed[N];        // every revision up to it is decided, as far as the rank knows
byte in_force[N];      // the revision whose plan is collected, 0: off
short ahead[N];        // bit r: revision r is committed and not yet in force; bit 0: off at the next boundary
#ifdef MUTANT_NO_END_CHECK
byte under[N];         // the plan the step was begun under
#endif

// The lease: 0 none, else 1 + the epoch that gave it. That a coordinator's patience
// outlasts it is a fact here; lease.pml counts.
byte lease[N];

// Hello on its way: none; said; said by one that has lapsed, which says it at once; Welcome on
// its way to each. One that has lapsed hears nothing else.
#define NO_HELLO 0
#define SAID 1
#define SAID_LAPSED 2
#define ANSWERED 3
#define ANSWERED_LAPSED 4
byte hello[N];
#define LAPSED(i) (hello[i] == SAID_LAPSED || hello[i] == ANSWERED_LAPSED)
#if EPOCHS > 1
byte epoch[N];         // of the last Welcome
byte hello_to[N];      // the epoch of the coordinator that Hello goes to
byte hello_held[N];    // the greatest effective step that Hello reports
bool started;          // the second hub leads
bool waited;           // for as long as any lease of the first could last
#define EPOCH(i) epoch[i]
#define STARTED(e) ((e) == 0 || started)
#else
#define EPOCH(i) 0
#define STARTED(e) true
#endif

// --- The coordinators. What one has said is read off what it has done. ---
byte dead_leads;               // bit e: does not run now
byte opened[EPOCHS];           // Prepare has been sent for every revision up to it
byte last[EPOCHS];             // the last word: every revision up to it is decided and told
byte seat[EPOCHS];             // bit i: rank i has been welcomed by this incarnation
byte out[EPOCHS];              // bit i: rank i is dropped, has left or was never counted
byte ready[EPOCHS * N];        // Ready of the present seat to the open revision: the fence, 0: not said
byte least_effective[EPOCHS];  // above the last commit, and the last steps of those that are out
#if defined(RESTARTS) || defined(MUTANT_SENT_BEFORE_LOGGED)
short logged;                  // bit r: the verdict on r is in the log
bool restarted;
#endif
#ifdef EVICTS
bool evicted;                  // the last rank
#define EVICTED(i) ((i) == N - 1 && evicted)
#else
#define EVICTED(i) false
#endif
#ifdef PROPOSALS
byte proposed;
byte waiting_;                 // 0 none, 1 a plan that is on, 2 off
#endif

// --- What was collected with an end mark, by any rank. ---
byte collected[S + 1];

// --- What is asserted. SPIN prints the name. ---
bool step_under_two_revisions, collected_without_lease, commit_missed, commit_overtaken, told_twice, goal_out_of_reach;
#define MUST(condition, broken) broken = !(condition); assert(!broken)

byte h, m;

#if N == 2
#define ALL(p, x) (p(0, x) && p(1, x))
#define GREATEST(p, x) MORE(p(0, x), p(1, x))
#define LEAST(p, x) LESS(p(0, x), p(1, x))
#else
#define ALL(p, x) (p(0, x) && p(1, x) && p(2, x))
#define GREATEST(p, x) MORE(p(0, x), MORE(p(1, x), p(2, x)))
#define LEAST(p, x) LESS(p(0, x), LESS(p(1, x), p(2, x)))
#endif

#define IS_OUT(e, i) ((out[e] & BIT(i)) != 0)
#define SEATED(e, i) ((seat[e] & BIT(i)) != 0)
#define RUNS(e) (STARTED(e) && (dead_leads & BIT(e)) == 0)
#define LIVES(i) ((gone & BIT(i)) == 0)
#define HEARD(i) ((SILENT & BIT(i)) == 0)

#include "coordinator.pml"
#include "member.pml"

// What a row must be able to reach, or it would prove nothing.
#define COLLECTS(i, x) (in_force[i] == REVISIONS && inside[i] && lease[i] != 0)
#ifdef GOAL
proctype goal() {
end:
  d_step { ALL(COLLECTS, 0) -> MUST(false, goal_out_of_reach) }
}
#endif

#ifdef PROPOSALS
#define MISSING(i, x) (!IS_OUT(0, i) && !SEATED(0, i))
#define NAMED !ALL(NOT_MISSING, 0)
#define NOT_MISSING(i, x) !MISSING(i, x)
#define IDLE (opened[0] == last[0])
ltl decided { <>[] (proposed == PROPOSALS && IDLE && (waiting_ == 0 || NAMED || opened[0] == R)) }
ltl off_decided { <> (last[0] > 0 && IS_COMMIT(last[0]) && OFF(last[0])) }
#endif
#define AT_END(i, x) (!LIVES(i) || (current[i] == S && !inside[i]))
ltl nobody_waits { <>[] ALL(AT_END, 0) }

// Time passes for ever, so that standing still is a run like any other: with -f,
// SPIN does not look at how a run goes on in which no process can move.
#ifdef LIVE
proctype time() {
  bool odd;
  do
  :: odd = !odd
  od
}
#endif

init {
  atomic {
    for (h : 0 .. N - 1) {
      lease[h] = 1;
      in_force[h] = 1;
      closed[h] = 1;
#ifdef STARTS_ON
      fence[h] = START + 1;
      in_force[h] = 0;
      closed[h] = 0
#endif
    }
#ifndef STARTS_ON  // revision 1 is on and in force since the step after the first
    verdict[1] = COMMIT + START + 1;
#endif
    for (h : 0 .. EPOCHS - 1) {
      opened[h] = BASE(h);
      last[h] = BASE(h);
      least_effective[h] = START + 1
    }
#ifndef STARTS_ON
    opened[0] = 1;
#ifdef RESTARTS
    logged = BIT(1);
#endif
    last[0] = 1;
    least_effective[0] = START + 2;
#endif
    seat[0] = ALL_RANKS;
    for (h : 0 .. N - 1) { run trainer(h); run agent(h) }
    for (h : 0 .. EPOCHS - 1) { run coordinator(h) }
    h = 0;
#ifdef GOAL
    run goal();
#endif
#ifdef LIVE
    run time();
#endif
    skip
  }
}
