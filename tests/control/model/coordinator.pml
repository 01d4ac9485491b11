// SPDX-License-Identifier: Apache-2.0
// The coordinator of agreement.pml. Included there.

#define OPEN(e) (RUNS(e) && opened[e] > last[e])
#define CAN_OPEN(e) (RUNS(e) && opened[e] == last[e] && opened[e] < HIGHEST(e))

// Heard within 2.5 s, as far as a choice does not say so.
#define PRESENT(i, e) (IS_OUT(e, i) || (SEATED(e, i) && HEARD(i)))
#define PROMISED(i, e) (IS_OUT(e, i) || ready[e * N + i] != 0)
#define FENCE(i, e) (IS_OUT(e, i) -> 0 : ready[e * N + i])
#define FENCE_OR_NEVER(i, e) (IS_OUT(e, i) || ready[e * N + i] == 0 -> NEVER : ready[e * N + i])

inline open_revision(e, off) {
  opened[e]++;
  is_off = is_off | (off << opened[e]);
#ifdef PROPOSALS
  waiting_ = 0
#endif
}

inline forget_answers(e) {
  for (h : e * N .. e * N + N - 1) { ready[h] = 0 }
  h = 0
}

// Dropped, or gone by its own word: with the last step heard of.
inline forget_seat(e, i) {
  out[e] = out[e] | BIT(i);
  seat[e] = seat[e] & ~BIT(i);
  ready[e * N + i] = 0;
#ifndef HEARD_LATE
#ifndef MUTANT_EFFECTIVE_BELOW_DROPPED
  least_effective[e] = MORE(least_effective[e], current[i] + 1)
#endif
#endif
}

// The verdict and its telling are two where the coordinator may die in between.
#if defined(RESTARTS)
#define AT_ONCE(e) skip
#else
#define AT_ONCE(e) tell(e)
#endif

inline tell(e) {
  last[e] = opened[e];
  forget_answers(e);
#ifdef PROPOSALS
  if
  :: !IS_COMMIT(last[e]) && waiting_ == 0 -> waiting_ = (OFF(last[e]) -> 2 : 1)
  :: else
  fi
#endif
}

inline write_verdict(e, v) {
  verdict[opened[e]] = v;
#ifdef RESTARTS
#if defined(MUTANT_UNLOGGED_OFF)
  logged = (OFF(opened[e]) -> logged : logged | BIT(opened[e]))
#elif !defined(MUTANT_SENT_BEFORE_LOGGED)
  logged = logged | BIT(opened[e])
#endif
#endif
}

inline commit(e) {
#ifdef MUTANT_LEAST_FENCE
  m = LEAST(FENCE_OR_NEVER, e);
  m = (m == NEVER -> 0 : m);
#else
  m = GREATEST(FENCE, e);
#endif
  m = MORE(m, least_effective[e]);
  write_verdict(e, COMMIT + m);
#ifdef MUTANT_COMMITS_OUT_OF_ORDER
  least_effective[e] = MORE(least_effective[e], START + 1);
#else
  least_effective[e] = m + 1;
#endif
  m = 0;
  AT_ONCE(e)
}

inline accept(e, i) {
  if
  :: hello[i] == SAID && IS_OUT(e, i) -> hello[i] = NO_HELLO  // RejoinRequest
  :: else ->
     if
#ifndef MUTANT_OLD_INCARNATION_HEARD
     :: hello[i] == SAID_LAPSED || !SEATED(e, i) -> ready[e * N + i] = 0
#endif
     :: else
     fi;
     out[e] = out[e] & ~BIT(i);
     seat[e] = seat[e] | BIT(i);
#if EPOCHS > 1
     least_effective[e] = MORE(least_effective[e], hello_held[i] + 1);
#endif
     hello[i] = (hello[i] == SAID -> ANSWERED : ANSWERED_LAPSED)
  fi
}

#ifdef RESTARTS
inline die(e) {
  dead_leads = dead_leads | BIT(e);
  seat[e] = 0;
  forget_answers(e);
  restarted = 1
}

// With its log: what was open is aborted, but where the log has the verdict.
inline restart(e) {
  dead_leads = dead_leads & ~BIT(e);
  if
  :: opened[e] > BASE(e) && (logged & BIT(opened[e])) == 0 ->
     MUST(verdict[opened[e]] == NOTHING, told_twice);
     write_verdict(e, ABORT);
     logged = logged | BIT(opened[e])
  :: else
  fi
}
#endif

// After 15 s of silence its lease has run out; so has one that an older epoch gave.
#if defined(MUTANT_OLD_HUB_RENEWS)
#define OUTLASTED(e, i) (lease[i] != 1 + (e))
#elif EPOCHS > 1
#define OUTLASTED(e, i) ((e) == 0 -> lease[i] != 1 : lease[i] == 0)
#else
#define OUTLASTED(e, i) (lease[i] == 0)
#endif
#define IDLES(i) (in_force[i] == 0 && ahead[i] == 0 && open_[i] == 0)
#define CAN_DROP(e, i) (RUNS(e) && !IS_OUT(e, i) && LIVES(i) && (OUTLASTED(e, i) || IDLES(i)) && KNOWN(e, i))
#if EPOCHS > 1
#define KNOWN(e, i) ((e) == 0 || SEATED(1, i) || waited)
#else
#define KNOWN(e, i) true
#endif

#if EPOCHS > 1
// One that has lapsed from the first comes back to the second only; how it comes back to its
// own the rows with one epoch show.
#ifdef MUTANT_GOES_BACK
#define FOR(e, i) (hello_to[i] == (e))
#else
#define FOR(e, i) ((e) == 1 && hello_to[i] == 1)
#endif
#ifdef MUTANT_OLD_HUB_RENEWS
#define NOT_OF_FIRST(i, x) true
#else
#define NOT_OF_FIRST(i, x) (lease[i] != 1)
#endif
// What is on waits for all ranks, or for as long as a lease of another epoch lasts.
#define PATIENT(e) ((e) == 0 || waited || seat[1] == ALL_RANKS)
#else
#define FOR(e, i) true
#define PATIENT(e) true
#endif

// Welcome's last word has every verdict that the log has.
#ifdef MUTANT_WELCOME_BEFORE_VERDICT
#define WORD_IS_OUT(e) true
#else
#define WORD_IS_OUT(e) (opened[e] == last[e] || verdict[opened[e]] == NOTHING)
#endif

#define WITH_RANK(i)                                                                                         \
  :: d_step { RUNS(e) && WORD_IS_OUT(e) && (hello[i] == SAID || hello[i] == SAID_LAPSED) && FOR(e, i) && !EVICTED(i) -> \
              accept(e, i) }                                                                                 \
  :: d_step { CAN_DROP(e, i) -> forget_seat(e, i) }

// An off leaves out whom it has not heard: also a Ready that is still on its way.
#ifdef MUTANT_OFF_ASKS_ALL
#define OFF_CAN_COMMIT(e) ALL(PROMISED, e)
#else
#define OFF_CAN_COMMIT(e) true
#endif

proctype coordinator(byte e) {
end:
  do
#ifdef PROPOSALS
  :: d_step { RUNS(e) && proposed < PROPOSALS -> proposed++; waiting_ = (proposed == PROPOSALS -> 2 : 1) }
  :: d_step { CAN_OPEN(e) && waiting_ == 1 && ALL(PRESENT, e) -> open_revision(e, 0) }
  :: d_step { CAN_OPEN(e) && waiting_ == 2 -> open_revision(e, 1) }
#else
  :: d_step { CAN_OPEN(e) && PATIENT(e) && ALL(PRESENT, e) -> open_revision(e, 0) }
#ifndef ON_ONLY
  :: d_step { CAN_OPEN(e) -> open_revision(e, 1) }
#endif
#endif
  :: d_step { OPEN(e) && verdict[opened[e]] == NOTHING && (!OFF(opened[e]) || OFF_CAN_COMMIT(e)) &&
              (OFF(opened[e]) || ALL(PROMISED, e)) -> commit(e) }
#ifndef QUIET
  :: d_step { OPEN(e) && verdict[opened[e]] == NOTHING && !OFF(opened[e]) -> write_verdict(e, ABORT); AT_ONCE(e) }
#endif
  :: d_step { OPEN(e) && verdict[opened[e]] != NOTHING -> tell(e) }
#ifdef MUTANT_SENT_BEFORE_LOGGED
  :: d_step { RUNS(e) && opened[e] > BASE(e) && verdict[opened[e]] != NOTHING && last[e] == opened[e] ->
              logged = logged | BIT(opened[e]) }
#endif
  WITH_RANK(0)
  WITH_RANK(1)
#if N > 2
  WITH_RANK(2)
#endif
#ifdef RESTARTS
  :: d_step { e == 0 && RUNS(e) && !restarted -> die(e) }
  :: d_step { e == 0 && !RUNS(e) -> restart(e) }
#endif
#ifdef DEAD_LEAD
  :: d_step { RUNS(e) && opened[e] > last[e] -> dead_leads = 1 }
#endif
#ifdef EVICTS
  :: d_step { !evicted -> evicted = 1 }
#endif
#if EPOCHS > 1
  :: d_step { e == 1 && !started && hello[0] == NO_HELLO -> started = 1 }
  :: d_step { e == 1 && started && !waited && ALL(NOT_OF_FIRST, 0) -> waited = 1 }
  :: d_step { e == 0 && RUNS(0) -> dead_leads = 1; seat[0] = 0; forget_answers(0) }
#endif
  od
}
