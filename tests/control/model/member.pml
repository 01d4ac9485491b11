// SPDX-License-Identifier: Apache-2.0
// A rank of agreement.pml: its training thread (step_gate) and its agent (member).
// Included there.

#define HOLDS_SOMETHING(i) (in_force[i] != 0 || ahead[i] != 0 || open_[i] != 0)

// Lapsing: off, and nothing promised, until a new Hello is answered.
inline lapse(i) {
  hello[i] = SAID_LAPSED;
#if EPOCHS > 1 && !defined(MUTANT_GOES_BACK)  // to a coordinator of this epoch or a later one
  hello_to[i] = MORE(hello_to[i], epoch[i]);
#endif
  lease[i] = 0;
  fence[i] = NEVER;
  open_[i] = 0;
#ifndef MUTANT_LAPSED_KEEPS_PENDING
#ifndef MUTANT_LAPSE_NOT_FINAL
  ahead[i] = 0;
#endif
#endif
#ifndef MUTANT_LAPSED_KEEPS_PLAN
#ifndef MUTANT_LAPSE_NOT_FINAL
  in_force[i] = 0;
#endif
#endif
  skip
}

// --- Training thread. ---

#define ENTER(r)                                                            \
  if                                                                        \
  :: r <= REVISIONS && (ahead[i] & BIT(r)) && EFFECTIVE(r) <= current[i] -> \
     MUST(OFF(r) || EFFECTIVE(r) == current[i], commit_overtaken);          \
     MUST(r > in_force[i], commit_overtaken);                               \
     in_force[i] = (OFF(r) -> 0 : r);                                       \
     ahead[i] = ahead[i] & ~BIT(r);                                         \
     OWN_LEASE(i, r)                                                        \
  :: else                                                                   \
  fi

// A commit of the new epoch in force brings the lease of the new epoch.
#if EPOCHS > 1
#define OWN_LEASE(i, r) lease[i] = (r > R -> 2 : lease[i])
#else
#define OWN_LEASE(i, r) skip
#endif

inline begin(i) {
  current[i]++;
  inside[i] = 1;
  if
  :: lease[i] == 0 && HOLDS_SOMETHING(i) && !LAPSED(i) -> lapse(i)
  :: else ->
     if
     :: ahead[i] & 1 -> in_force[i] = 0; ahead[i] = 0
     :: else -> for (h : 1 .. REVISIONS) { ENTER(h) }; h = 0
     fi
  fi;
#ifdef MUTANT_NO_END_CHECK
  under[i] = (lease[i] != 0 -> in_force[i] : 0)
#endif
}

// The collective in a step: nobody ends it before all have begun it.
#define BEGUN_BY(j, i) (!LIVES(j) || current[j] >= current[i])
#ifdef COUPLED
#define STEP_ENDED ALL(BEGUN_BY, i)
#else
#define STEP_ENDED true
#endif

// The end mark. The coordinator that gave the lease counts on this rank still.
inline mark(i, r) {
  MUST(lease[i] != 0 && !IS_OUT(lease[i] - 1, i), collected_without_lease);
  MUST(collected[current[i]] == 0 || collected[current[i]] == r, step_under_two_revisions);
  collected[current[i]] = r
}

#if EPOCHS > 1
#define FOR_EACH_EPOCH(what, i) what(0, i); what(1, i)
#else
#define FOR_EACH_EPOCH(what, i) what(0, i)
#endif

// Left, with the last step.
inline leave(i) {
  lapse(i);
  in_force[i] = 0;
  ahead[i] = 0;
  hello[i] = NO_HELLO;
  gone = gone | BIT(i);
  if
  :: HEARD(i) -> FOR_EACH_EPOCH(forget_seat, i)
  :: else
  fi
}
// What no rank can collect any more.
#define PAST(i, t) (!LIVES(i) || current[i] > (t) || (current[i] == (t) && !inside[i]))
#ifdef CRASH
#define FORGET_COLLECTED skip
#else
#define FORGET_COLLECTED                                              \
  for (h : 1 .. S) {                                                  \
    if                                                                \
    :: collected[h] != 0 && ALL(PAST, h) -> collected[h] = 0          \
    :: else                                                           \
    fi                                                                \
  }                                                                   \
  h = 0
#endif

inline end_step(i) {
#ifdef MUTANT_NO_END_CHECK
  if
  :: under[i] != 0 -> mark(i, under[i])
  :: else
  fi;
  under[i] = 0;
#else
  if  // looked at again, with the generation: a plan that was lost in the step is 0
  :: in_force[i] != 0 && lease[i] != 0 && !LAPSED(i) -> mark(i, in_force[i])
  :: else
  fi;
#endif
  inside[i] = 0;
  if
  :: current[i] == S -> leave(i)
  :: else
  fi;
  FORGET_COLLECTED
}

// max_wait: any time; in the rows where no patience ends, when nobody is there to decide.
#ifdef QUIET
#define MAX_WAIT (dead_leads != 0)
#else
#define MAX_WAIT true
#endif
#define AT_FENCE(i) (!inside[i] && current[i] < S && current[i] + 1 >= fence[i])

proctype trainer(byte i) {
end:
  do
  :: d_step { LIVES(i) && !inside[i] && current[i] < S && current[i] + 1 < fence[i] -> begin(i) }
  :: d_step { LIVES(i) && inside[i] && STEP_ENDED -> end_step(i) }
#ifndef MUTANT_NOBODY_LAPSES
  :: d_step { LIVES(i) && AT_FENCE(i) && MAX_WAIT -> lapse(i) }
#endif
  od
}

// --- Member: one agent thread. ---

#ifdef MUTANT_PASSES_OVER
#define PASSED_OVER_OR(i, r) true
#else
#define PASSED_OVER_OR(i, r) (open_[i] == 0 || open_[i] == (r))
#endif

// A plan that is on, committed without this rank's promise.
#ifdef MUTANT_SECOND_PROMISE
#define NOT_MINE(i, r) skip
#else
#define NOT_MINE(i, r) lapse(i)
#endif

// The agent looks at the lease before it acts on what it hears.
#define LOOK_AT_LEASE(i)                                                \
  if                                                                    \
  :: lease[i] == 0 && HOLDS_SOMETHING(i) && !LAPSED(i) -> lapse(i)      \
  :: else                                                               \
  fi

// A word that all revisions up to `upto` are decided, with the newest commit among them.
inline learn(i, upto) {
  LOOK_AT_LEASE(i);
  if
  :: upto > closed[i] ->
     h = NEWEST(EPOCH(i), upto);
     if
     :: h > closed[i] && !LAPSED(i) ->
        if
#ifndef MUTANT_PASSES_OVER
        :: OFF(h) && open_[i] != 0 && open_[i] < h -> ahead[i] = 1  // what was promised may be committed
#endif
        :: OFF(h) && PASSED_OVER_OR(i, h) -> ahead[i] = ahead[i] | BIT(h)
        :: !OFF(h) && open_[i] == h -> MUST(EFFECTIVE(h) > current[i], commit_missed); ahead[i] = ahead[i] | BIT(h)
        :: else -> NOT_MINE(i, h)
        fi
     :: else
     fi;
     h = 0;
     if
     :: open_[i] != 0 && open_[i] <= upto -> open_[i] = 0; fence[i] = NEVER
     :: else
     fi;
#ifdef STARTS_ON
     if
     :: open_[i] == 0 -> fence[i] = NEVER
     :: else
     fi;
#endif
     closed[i] = upto
  :: else
  fi
}

#define AWAITED(e, r) (opened[e] == r && last[e] < r && verdict[r] == NOTHING)
inline answer(i) {
  if
  :: SEATED(EPOCH(i), i) && AWAITED(EPOCH(i), open_[i]) -> ready[EPOCH(i) * N + i] = fence[i]
  :: else
  fi
}

// Fence: beyond the step published, which may be the one begun or the next.
inline on_prepare(i, r, beyond) {
#ifndef MUTANT_SECOND_PROMISE
  learn(i, r - 1);
#endif
  if
  :: LAPSED(i)
  :: else ->
#ifdef STARTS_ON
     if
     :: open_[i] == 0 && fence[i] != NEVER  // the start's implied promise becomes this one
     :: else -> fence[i] = current[i] + beyond
     fi;
#else
     fence[i] = current[i] + beyond;
#endif
     open_[i] = r;
     answer(i);
#ifdef MUTANT_EVICTED_COUNTS_IN
     lease[i] = 1;
#endif
#ifdef MUTANT_READY_WITHOUT_FENCE
     fence[i] = NEVER
#endif
  fi
}

inline say_hello(i, e) {
  hello[i] = (hello[i] == NO_HELLO -> SAID : hello[i]);
#if EPOCHS > 1
  hello_to[i] = e;
  for (h : 1 .. REVISIONS) {
    if
    :: in_force[i] == h || (ahead[i] & BIT(h)) -> hello_held[i] = MORE(hello_held[i], EFFECTIVE(h))
    :: else
    fi
  }
  h = 0
#endif
}

// The lease counts from when Hello was said: a coordinator that has dropped the rank since has outlasted it.
#if EPOCHS > 1
#define LEASED_BY_WELCOME(e, i) (!IS_OUT(e, i) && ((e) == 1 || !waited))
#else
#define LEASED_BY_WELCOME(e, i) (!IS_OUT(e, i))
#endif

#ifdef MUTANT_NEW_EPOCH_RENEWS  // also for a plan of the older epoch
#define OLD_PLAN_MAY_STAY(i) true
#else
#define OLD_PLAN_MAY_STAY(i) (!HOLDS_SOMETHING(i))
#endif

inline on_welcome(i) {
#if EPOCHS > 1
  if
  :: epoch[i] != hello_to[i] ->
     epoch[i] = hello_to[i];
     closed[i] = BASE(hello_to[i]);
#ifdef MUTANT_PROMISE_ALONE_LAPSES
     open_[i] = 0;
     fence[i] = NEVER
#else
     if
     :: open_[i] != 0 -> lapse(i)
     :: else
     fi
#endif
  :: else
  fi;
  hello_held[i] = 0;
#ifdef MUTANT_GOES_BACK
  hello_to[i] = 0;
#endif
#endif
  if
  :: hello[i] == ANSWERED_LAPSED ->
     closed[i] = last[EPOCH(i)];
     if
     :: LEASED_BY_WELCOME(EPOCH(i), i) -> lease[i] = 1 + EPOCH(i); hello[i] = NO_HELLO
     :: else -> hello[i] = SAID_LAPSED
     fi
  :: else ->
     hello[i] = NO_HELLO;
#ifdef MUTANT_FORGETS_PROMISE_ON_RETURN
     open_[i] = 0;
     fence[i] = NEVER;
#endif
     learn(i, last[EPOCH(i)]);
#if EPOCHS > 1
     if
     :: !LAPSED(i) && OLD_PLAN_MAY_STAY(i) && LEASED_BY_WELCOME(EPOCH(i), i) -> lease[i] = 1 + EPOCH(i)
     :: else
     fi
#endif
  fi
}

inline crash(i, resumes_at) {
  forget_seat(0, i);
  lapse(i);
  in_force[i] = 0;
  ahead[i] = 0;
  closed[i] = 0;
  inside[i] = 0;
  current[i] = resumes_at
}

#define PREPARED(i, r) (r <= opened[EPOCH(i)] && r > closed[i] && r > BASE(EPOCH(i)))
#ifdef MUTANT_SECOND_PROMISE
#define TAKES(i, r) (PREPARED(i, r) && r > open_[i])
#else
#define TAKES(i, r) (PREPARED(i, r) && r != open_[i])
#endif
#ifdef MUTANT_EVICTED_COUNTS_IN
#define ASKED(i) true
#else
#define ASKED(i) (!IS_OUT(EPOCH(i), i))
#endif
// After Hello is said nothing is heard but its answer.
#define LISTENS(i) (LIVES(i) && HEARD(i) && !LAPSED(i) && hello[i] == NO_HELLO)

#ifdef NEAR
#define ON_PREPARE(r) \
  :: d_step { LISTENS(i) && ASKED(i) && TAKES(i, r) -> on_prepare(i, r, 1) }
#else
#define ON_PREPARE(r)                                                        \
  :: d_step { LISTENS(i) && ASKED(i) && TAKES(i, r) -> on_prepare(i, r, 1) } \
  :: d_step { LISTENS(i) && ASKED(i) && TAKES(i, r) -> on_prepare(i, r, 2) }
#endif
#define ON_DECIDED(r) \
  :: d_step { LISTENS(i) && closed[i] < r && r > BASE(EPOCH(i)) && last[EPOCH(i)] >= r -> learn(i, r) }

#if EPOCHS > 1
#define MAY_GO(i, e)                                                                                     \
  (STARTED(e) && (e) >= epoch[i] &&                                                                      \
   ((e) == 1 && (epoch[i] == 0 || LAPSED(i))) &&                 \
   ((e) == 0 || epoch[i] == 1 || i != 0 || lease[0] == 0 || (dead_leads & 1)))
#else
#define MAY_GO(i, e) (!SEATED(e, i) || RECONNECTING)
#endif
#ifdef RECONNECTS
#define RECONNECTING true
#else
#define RECONNECTING false
#endif

// The acknowledgement of a Progress, sent by a coordinator that counts on this rank.
#define RENEWS(i) \
  (RUNS(EPOCH(i)) && SEATED(EPOCH(i), i) && !IS_OUT(EPOCH(i), i) && !EVICTED(i) && GIVES(i))
#if EPOCHS == 1
#define GIVES(i) true
#else  // the first hub none once the second leads; the second none for a plan of the first
#define OF_FIRST(i) (in_force[i] != 0 && in_force[i] <= R || (ahead[i] & ((2 << R) - 2)) != 0)
#if defined(MUTANT_NEW_EPOCH_RENEWS)
#define GIVES(i) (epoch[i] == 0 -> !started : true)
#elif defined(MUTANT_OLD_HUB_RENEWS)
#define GIVES(i) (epoch[i] == 0 -> true : !OF_FIRST(i))
#else
#define GIVES(i) (epoch[i] == 0 -> !started : !OF_FIRST(i))
#endif
#endif

// A gap that nobody has seen.
#ifdef GAPS
#define MAY_SKIP(i) true
#else
#define MAY_SKIP(i) (!HOLDS_SOMETHING(i))
#endif

proctype agent(byte i) {
#ifdef CRASH
  bool crashed;
#endif
end:
  do
  ON_PREPARE(1)
  ON_DECIDED(1)
#if REVISIONS > 1
  ON_PREPARE(2)
  ON_DECIDED(2)
#endif
#if REVISIONS > 2
  ON_PREPARE(3)
  ON_DECIDED(3)
#endif
#if REVISIONS > 3
  ON_PREPARE(4)
  ON_DECIDED(4)
#endif
  // Prepare again: the same answer
  :: d_step { LISTENS(i) && SEATED(EPOCH(i), i) && open_[i] != 0 && ready[EPOCH(i) * N + i] == 0 &&
              AWAITED(EPOCH(i), open_[i]) -> answer(i) }
#ifndef QUIET
  :: d_step { lease[i] != 0 && HOLDS_SOMETHING(i) -> lease[i] = 0 }
  :: d_step { LIVES(i) && lease[i] == 0 && !LAPSED(i) && MAY_SKIP(i) && RENEWS(i) -> lease[i] = 1 + EPOCH(i) }
#ifdef MUTANT_LAPSE_NOT_FINAL
  :: d_step { LIVES(i) && LAPSED(i) && RENEWS(i) -> lease[i] = 1 + EPOCH(i); hello[i] = NO_HELLO }
#endif
  :: d_step { LIVES(i) && lease[i] == 0 && !LAPSED(i) && HOLDS_SOMETHING(i) -> lapse(i) }
#endif
  :: d_step { LIVES(i) && HEARD(i) && !LAPSED(i) && hello[i] == NO_HELLO && IS_OUT(EPOCH(i), i) ->
              lapse(i) }  // RejoinRequest
  :: d_step { LIVES(i) && HEARD(i) && hello[i] == NO_HELLO && MAY_GO(i, 0) -> say_hello(i, 0) }
#if EPOCHS > 1
  :: d_step { LIVES(i) && HEARD(i) && (hello[i] == NO_HELLO || (hello[i] == SAID_LAPSED && hello_to[i] != 1)) && MAY_GO(i, 1) ->
              say_hello(i, 1) }
#endif
  :: d_step { LIVES(i) && hello[i] >= ANSWERED -> on_welcome(i) }
#ifdef CRASH
  :: d_step { i == N - 1 && !crashed && LIVES(i) -> crash(i, current[i]); crashed = 1 }
  :: d_step { i == N - 1 && !crashed && LIVES(i) && current[i] != START -> crash(i, START); crashed = 1 }
#endif
#ifdef STARTS_ON  // Welcome says that it does not start on
  :: d_step { LISTENS(i) && open_[i] == 0 && fence[i] != NEVER -> fence[i] = NEVER }
#endif
  od
}
