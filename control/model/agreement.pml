// SPDX-License-Identifier: Apache-2.0
// The agreement of control/agree in Promela: coordinator, members, gates and the
// write-once register. What is modelled, how far, and what is atomic: README.md.
//
// A message is a fact: once said it may be received at any later time, any number
// of times, or never. That is loss, doubling, delay and reordering at once.
//
// N ranks run the steps 0 to S, at most R revisions are opened. Options (-D):
// COUPLED     a step ends only when all living ranks have begun it
// LEAVES      ranks other than 0 may end, after any step
// CRASH       the last rank crashes once, at any point, and comes back
// DIES        rank 0 dies, at any point, and the coordinator with it
// STARTS_ON   the epoch begins with an implied promise on every rank
// GIVES_UP    a rank at its fence goes on after fence_timeout, the register being away
// NO_FAULTS   nobody's patience ends: neither doubt nor time-out
// NO_TIMEOUT  the coordinator's patience does not end, a member's may
// DEAF        no verdict reaches a member but by the register
// PROPOSALS   so many changes; without it there is always another one
// EPOCHS 2    rank 0 is launched again with the last rank, the others are left over
// MUTANT_…    one thing left out or done wrong; rows.txt says which property it breaks

#ifndef N
#define N 3
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

#define NEVER 31
#define START 0

// --- The register: one entry a revision, the last of them only by one that came back. ---
#define NOTHING 0
#define ABORT 1
#define CAME_BACK 2
#define COMMIT 3 /* COMMIT + effective */
#define ENTRIES (R + 2)
byte entry[EPOCHS * ENTRIES];

#if EPOCHS == 1 || defined(MUTANT_ONE_REGISTER)
#define HOME(e) 0
#else
#define HOME(e) (e)
#endif
#define IN(e, r) entry[HOME(e) * ENTRIES + (r)]
#define IS_COMMIT(e, r) (IN(e, r) >= COMMIT)
#define EFFECTIVE(e, r) (IN(e, r) - COMMIT)

// The newest commit among the revisions up to c; and of those in force in step n. 0: none.
#define UPTO(e, r, c, else_) (r <= R && r <= (c) && IS_COMMIT(e, r) -> r : else_)
#define NEWEST(e, c) UPTO(e, 3, c, UPTO(e, 2, c, UPTO(e, 1, c, 0)))
#define HOLDS(e, r, n, else_) (r <= R && IS_COMMIT(e, r) && EFFECTIVE(e, r) <= (n) -> r : else_)
#define IN_FORCE(e, n) HOLDS(e, 3, n, HOLDS(e, 2, n, HOLDS(e, 1, n, 0)))

// --- The ranks: what their gates and members know. ---
mtype = { living, gone, back, welcomed, rejoining };
mtype life[N] = living;
byte current[N];          // the step begun last
byte fence[N] = NEVER;    // the step not to be begun; with nothing open: the start's
byte open_[N];            // the revision promised, 0: none
byte closed[N];           // every revision up to it is decided, as far as the rank knows
byte in_force[N];              // the revision in force, 0: none yet
byte ahead[N];            // bit r: revision r is committed and not yet in force
byte asking[N];           // the revision the disk thread is asking the register about, 0: none
#ifdef GIVES_UP
bool unheard[N];          // went on without a verdict, and has not heard it since
bool missed[N];           // runs an older plan than the committed one, and says so
#define EXCUSED(i) (unheard[i] || missed[i])
#else
#define EXCUSED(i) false
#endif
#ifdef COUPLED
byte ended;               // the greatest step that any life of any rank has ended
#endif
#ifdef MUTANT_VERDICT_WITHOUT_PLAN
byte planned[N];          // bit r: has seen the plan of revision r
#endif
#if EPOCHS > 1
byte epoch[N];
byte reign;               // the epoch of the coordinator
#define EPOCH(i) epoch[i]
#define MEMBER(i) (reign == 0 -> i != N - 1 : i == 0 || i == N - 1)
#define OF_REIGN(i) (epoch[i] == reign)
#else
#define EPOCH(i) 0
#define reign 0
#define MEMBER(i) true
#define OF_REIGN(i) true
#endif

// --- What has been said to the coordinator, by the process it knows of that rank. ---
byte ready[N];            // Ready to the open revision: the fence, 0: not said
byte left_[N];            // Left: the last step + 1, 0: not said

// --- The coordinator. What it has said is read off what it has done. ---
bool alive = true;
byte opened[EPOCHS];      // Prepare has been sent for every revision up to it
byte last[EPOCHS];        // the last word: every revision up to it is decided and told
byte verdict;             // of the open revision, on its way into the register; as an entry
#ifdef PROPOSALS
byte proposed;
bool waiting_;
#endif

// --- What is asserted. SPIN prints the name. ---
bool step_under_two_revisions, not_the_newest_commit, commit_overtaken, commit_missed, goal_out_of_reach;
#define MUST(condition, broken) broken = !(condition); assert(!broken)

hidden byte h, m, e;

#define MORE(a, b) ((a) > (b) -> (a) : (b))
#define LESS(a, b) ((a) < (b) -> (a) : (b))
#if N == 2
#define ALL(p, x) (p(0, x) && p(1, x))
#define GREATEST(p, x) MORE(p(0, x), p(1, x))
#define LEAST(p, x) LESS(p(0, x), p(1, x))
#else
#define ALL(p, x) (p(0, x) && p(1, x) && p(2, x))
#define GREATEST(p, x) MORE(p(0, x), MORE(p(1, x), p(2, x)))
#define LEAST(p, x) LESS(p(0, x), LESS(p(1, x), p(2, x)))
#endif

#include "rank.pml"
#include "coordinator.pml"

// What a row must be able to reach, or it would prove nothing.
#define SWITCHED(j, x) (life[j] == living && in_force[j] == R)
#ifdef GOAL
proctype goal() {
end:
  d_step { ALL(SWITCHED, 0) -> MUST(false, goal_out_of_reach) }
}
#endif

#define IDLE (opened[reign] == last[reign])
#define AT_END(j, x) (life[j] == gone || current[j] == S)
#ifdef PROPOSALS
#define COMMITTED (!waiting_ && IS_COMMIT(reign, last[reign]))
ltl decided { <>[] (proposed == PROPOSALS && IDLE && (COMMITTED || opened[reign] == R)) }
#endif
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
#ifdef STARTS_ON
    for (h : 0 .. N - 1) { fence[h] = START + 1 }
#endif
#if EPOCHS > 1
    life[N - 1] = gone;
#endif
    for (h : 0 .. N - 1) { run trainer(h); run agent(h); run disk(h) }
    h = 0;
    run coordinator();
#ifdef GOAL
    run goal();
#endif
#ifdef LIVE
    run time();
#endif
    run coordinator_disk()
  }
}
