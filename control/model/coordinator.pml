// SPDX-License-Identifier: Apache-2.0
// The coordinator of agreement.pml and rank 0's disk thread. Included there.

#define SEATED(j, x) (!MEMBER(j) || life[j] == living || life[j] == gone || life[j] == rejoining)
#define OPEN (alive && opened[reign] > last[reign])

// What a rank has promised, as far as the coordinator has heard: of those in the
// mask it has heard Left, and no Ready.
#define HEARD_LEFT(j, mask) (left_[j] != 0 && ((mask) & (1 << j)))
#define PROMISED(j, mask) (HEARD_LEFT(j, mask) -> left_[j] : ready[j])
#ifdef MUTANT_SILENT_IS_GONE
#define ANSWERED(j, mask) true
#else
#define ANSWERED(j, mask) (!MEMBER(j) || HEARD_LEFT(j, mask) || ready[j] != 0)
#endif
#if EPOCHS > 1
// Rank 0 and the last rank are launched again; the others are left over.
inline launch_again() {
  reign = 1;
  verdict = NOTHING;
  forget_answers();
  forget(0);
  epoch[0] = 1;
  forget(N - 1);
  life[N - 1] = living;
  epoch[N - 1] = 1
}
#endif

#define CAN_COMMIT(mask) (OPEN && verdict == NOTHING && ALL(ANSWERED, mask))

inline verdict_now(mask) {
#ifdef MUTANT_LEAST_FENCE
  e = LEAST(PROMISED, mask);
#else
  e = GREATEST(PROMISED, mask);
#endif
  e = MORE(e, START + 1);
  h = NEWEST(reign, last[reign]);
#ifndef MUTANT_FORGETS_LAST_EFFECTIVE
  e = (h != 0 -> MORE(e, EFFECTIVE(reign, h) + 1) : e);
#endif
  verdict = COMMIT + e;
  e = 0;
  h = 0
}

inline open_waiting() {
  opened[reign]++;
#ifdef PROPOSALS
  waiting_ = 0
#endif
}

inline retry() {
#if defined(PROPOSALS) && !defined(MUTANT_NO_RETRY)
  waiting_ = 1
#else
  skip
#endif
}

inline forget_answers() {
  for (h : 0 .. N - 1) {
    ready[h] = 0
  }
  h = 0
}

#ifdef PROPOSALS
inline propose() {
  proposed++;
  waiting_ = 1
}
#endif

// The write. Who comes first wins. Nobody has begun the step from which it holds;
// of those that have ended their last step is known.
#define BEGUN(j) (life[j] == gone -> left_[j] : current[j] + 1)
#define NOT_BEGUN(j, step) (HOME(EPOCH(j)) != HOME(reign) || EXCUSED(j) || BEGUN(j) <= (step))
#ifdef COUPLED  // nor by a life that is over
#define NOT_ENDED(step) (ended < (step))
#else
#define NOT_ENDED(step) true
#endif

inline decide() {
  IN(reign, opened[reign]) = verdict;
  if
  :: IS_COMMIT(reign, opened[reign]) ->
     m = EFFECTIVE(reign, opened[reign]);
     MUST(ALL(NOT_BEGUN, m) && NOT_ENDED(m), step_under_two_revisions);
     h = NEWEST(reign, opened[reign] - 1);
     MUST(h == 0 || EFFECTIVE(reign, h) < m, commit_overtaken);
     h = 0;
     m = 0
  :: else
  fi
}

inline close_open() {
  verdict = NOTHING;
  last[reign] = opened[reign];
  forget_answers();
  if
  :: IS_COMMIT(reign, last[reign])
  :: else -> retry()
  fi
}

inline on_hello(j) {
  ready[j] = 0;
  left_[j] = 0;
  life[j] = welcomed
}

#define TOLD_CLOSED(j, x) (!OF_REIGN(j) || closed[j] < opened[reign])

proctype coordinator() {
end:
  do
#ifdef PROPOSALS
  :: d_step { alive && proposed < PROPOSALS -> propose() }
#define WAITING waiting_
#else
#define WAITING true
#endif
  :: d_step { alive && WAITING && opened[reign] == last[reign] && opened[reign] < R && ALL(SEATED, 0) ->
              open_waiting() }
  :: d_step { CAN_COMMIT(0) -> verdict_now(0) }
#ifdef LEAVES
  :: d_step { left_[1] != 0 && CAN_COMMIT(2) -> verdict_now(2) }
#if N > 2
  :: d_step { left_[2] != 0 && CAN_COMMIT(4) -> verdict_now(4) }
  :: d_step { left_[1] != 0 && left_[2] != 0 && CAN_COMMIT(6) -> verdict_now(6) }
#endif
#endif
#if !defined(NO_FAULTS) && !defined(NO_TIMEOUT)
  :: d_step { OPEN && verdict == NOTHING -> verdict = ABORT }
#else  // somebody says that it is closed
  :: d_step { OPEN && verdict == NOTHING && !ALL(TOLD_CLOSED, 0) -> verdict = ABORT }
#endif
  :: d_step { OPEN && verdict != NOTHING && IN(reign, opened[reign]) != NOTHING -> close_open() }
#ifdef CRASH
  :: d_step { alive && life[N - 1] == back -> on_hello(N - 1) }
#endif
#ifdef DIES
  :: d_step { alive && life[0] != gone -> alive = 0; forget(0); life[0] = gone }
#endif
#if EPOCHS > 1
  :: d_step { reign == 0 -> launch_again() }
#endif
  od
}

// Rank 0's disk thread, for the coordinator. What it was about to write when
// rank 0 died may be written still.
proctype coordinator_disk() {
end:
  do
  :: d_step { verdict != NOTHING && IN(reign, opened[reign]) == NOTHING -> decide() }
  od
}
