// SPDX-License-Identifier: Apache-2.0
// The two words of control/agree/step_gate in Promela, store by store under total
// store order: a store goes into the thread's buffer and reaches memory later;
// seq_cst, and every lock and unlock, waits until the buffer is empty. README.md
// says what is atomic.
//
// S steps are begun, the agent takes SWITCHES turns: it promises, sends Ready, and
// hears a commit or an abort; or it settles a commit that nothing had promised.
//
// LAPSES: the trainer lapses by itself at its fence (max_wait), the agent at any time
// (no lease, another epoch): off at the next boundary, nothing promised, one generation
// more. A collected step that began in an older generation writes no end mark, and what
// was promised in one is not settled in the next.
//
// MUTANT_NO_SECOND_LOOK      promise() does not read the current step again
// MUTANT_TRAINER_NOT_SEQ_CST the trainer loads the gate before its store has landed
// MUTANT_AGENT_NOT_SEQ_CST   the agent loads the step before its store has landed
// MUTANT_NO_LOOK_AT_ENTRY    a commit without a promise is entered unseen
// MUTANT_LAPSE_WITHOUT_GENERATION  the end of a step does not look at the generation
// MUTANT_SETTLES_LAPSED            settle() does not look at the generation of the promise
// MUTANT_LAPSE_LEAVES_GATE         the agent's lapse does not close the gate for the next boundary
// MUTANT_HANDLED_IS_CURRENT  the gate is computed from the step published

#ifndef S
#define S 5
#endif
#ifndef SWITCHES
#define SWITCHES 2
#endif
#define NEVER 31
#define EMPTY 63

// --- Memory, and what is on its way to it. ---
byte current = 0;
byte gate = NEVER;
byte trainer_current = EMPTY;
byte trainer_gate = EMPTY;
byte agent_gate = EMPTY;

// --- Guarded by the mutex. ---
bool locked;
byte fence = NEVER;
byte effective[SWITCHES + 1];  // of what was entered, rising; 0: not entered
byte ahead;                    // bit k: switch k is entered and not yet in force
byte in_force;
byte handled;
bool end_said = true;
#ifdef LAPSES
byte h;
byte generation;               // of the plan; atomic, as the trainer reads it at the end of a step
bool off_next;                 // lapsed: in_force is to go at the next boundary
#define OFF_NEXT off_next
#else
#define OFF_NEXT false
#endif

// --- Ghosts. ---
byte promised = NEVER;  // Ready has been sent with this fence and its verdict is not known
byte begun;

#ifdef LAPSES
bool lapse_is_out;      // the agent's lapse has returned, and the trainer has not taken it
#endif

bool promise_broken, settled_after_lapse, marked_after_lapse, begun_on_after_lapse, not_the_newest_commit, change_passed_unseen, entered_too_late;
#define MUST(condition, broken) broken = !(condition); assert(!broken)

#define LESS(a, b) ((a) < (b) -> (a) : (b))
#define ON(k) ((k) % 2 == 1)
#define AHEAD(k, else_) (k <= SWITCHES && (ahead & (1 << k)) -> effective[k] : else_)
#define FRONT AHEAD(1, AHEAD(2, AHEAD(3, NEVER)))
#define HOLDS(k, n, else_) (k <= SWITCHES && effective[k] != 0 && effective[k] <= (n) -> k : else_)
#define IN_FORCE(n) HOLDS(3, n, HOLDS(2, n, HOLDS(1, n, 0)))

// A plan that is on collects one step, its first, and ends with the next.
#define NEXT_CHANGE(t) \
  ((t) <= effective[in_force] -> effective[in_force] : ((t) == effective[in_force] + 1 -> (t) : NEVER))
#if defined(MUTANT_LAPSE_LEAVES_GATE) || !defined(LAPSES)
#define FIRST_CLOSED LESS(fence, LESS(FRONT, (end_said -> NEVER : NEXT_CHANGE(FROM + 1))))
#else
#define FIRST_CLOSED (off_next -> 0 : LESS(fence, LESS(FRONT, (end_said -> NEVER : NEXT_CHANGE(FROM + 1)))))
#endif
#ifdef MUTANT_HANDLED_IS_CURRENT
#define FROM current
#else
#define FROM handled
#endif

// Memory takes the stores of a thread in their order; each has at most one of a kind.
proctype memory() {
end:
  do
  :: d_step { trainer_current != EMPTY -> current = trainer_current; trainer_current = EMPTY }
  :: d_step { trainer_current == EMPTY && trainer_gate != EMPTY -> gate = trainer_gate; trainer_gate = EMPTY }
  :: d_step { agent_gate != EMPTY -> gate = agent_gate; agent_gate = EMPTY }
  od
}

#define TRAINER_LANDED (trainer_current == EMPTY && trainer_gate == EMPTY)
#define AGENT_LANDED (agent_gate == EMPTY)

inline lock(landed) { d_step { !locked && landed -> locked = 1 } }
inline unlock(landed) { d_step { landed -> locked = 0 } }

inline begin_step(n) {
  d_step {
    MUST(n < promised, promise_broken);
    MUST(in_force == IN_FORCE(n), not_the_newest_commit);
    begun = n
  }
}

// Under the mutex: nothing promised, nothing ahead, what is in force is to go.
inline lapse_() {
  for (h : 1 .. SWITCHES) {
    if
    :: ahead & (1 << h) -> effective[h] = 0
    :: else
    fi
  }
  h = 0;
  ahead = 0;
  fence = NEVER;
  promised = NEVER;
  generation++
}

inline take_lapse() {
  effective[in_force] = 0;
  in_force = 0;
  end_said = 1;
  off_next = 0;
  lapse_is_out = 0
}

proctype trainer() {
  byte n = 1;
  byte seen;
#ifdef LAPSES
  byte began_in;
  bool collecting;
#define MAX_WAIT true
#else
#define MAX_WAIT (n < fence)
#endif
  do
  :: n <= S ->
     // try_begin
     trainer_current = n;
#ifndef MUTANT_TRAINER_NOT_SEQ_CST
     TRAINER_LANDED;
#endif
     d_step {
       seen = (trainer_gate != EMPTY -> trainer_gate : gate);
#ifdef LAPSES
       MUST(!lapse_is_out || n >= seen, begun_on_after_lapse)
#endif
     }
     if
     :: n < seen ->
        d_step {
          MUST(end_said || n != NEXT_CHANGE(n), change_passed_unseen);
          seen = 0
        }
     :: else ->
        seen = 0;
        // begin_or_wait: again until it does not say wait
        d_step { !locked && TRAINER_LANDED && MAX_WAIT -> locked = 1 }
        // begin
        d_step {
#ifdef LAPSES
          if
          :: n >= fence -> lapse_(); take_lapse()
          :: n < fence && off_next -> take_lapse()
          :: else
          fi;
#endif
          do
          :: FRONT <= n ->
             in_force = (ahead & 2 -> 1 : (ahead & 4 -> 2 : 3));
             ahead = ahead & ~(1 << in_force);
             end_said = !ON(in_force)
          :: else -> break
          od;
          if
          :: !end_said && n >= effective[in_force] + 1 -> end_said = 1
          :: else
          fi;
#ifdef LAPSES
          collecting = !end_said && n == effective[in_force];
          began_in = (collecting -> generation : 0);
#endif
          handled = n
        }
        trainer_gate = FIRST_CLOSED;
        unlock(TRAINER_LANDED)
     fi;
     begin_step(n);
#ifdef LAPSES
     d_step {  // the end of step n
       if
#ifdef MUTANT_LAPSE_WITHOUT_GENERATION
       :: collecting -> MUST(began_in == generation, marked_after_lapse)
#else
       :: collecting && began_in == generation -> skip  // the end mark
#endif
       :: else
       fi;
       collecting = 0;
       began_in = 0
     }
#endif
     n++
  :: else -> break
  od
}

inline publish() {
  agent_gate = FIRST_CLOSED;
#ifndef MUTANT_AGENT_NOT_SEQ_CST
  AGENT_LANDED
#endif
}

#ifdef LAPSES  // the trainer may have lapsed from it by now
#define PROMISED_STILL (promised_in == generation -> fence : NEVER)
#else
#define PROMISED_STILL fence
#endif

inline promise(lookahead) {
  lock(AGENT_LANDED);
  now = current;
  do
  :: fence = now + lookahead;
     publish();
#ifdef MUTANT_NO_SECOND_LOOK
     break
#else
     now = current;
     if
     :: now >= fence
     :: else -> break
     fi
#endif
  od;
  unlock(AGENT_LANDED);
  now = 0;
  d_step {
    promised = PROMISED_STILL;
    MUST(promised == NEVER || begun < promised, promise_broken)
  }
}

// In one instant: what holds is entered, the promise is replaced by none.
inline settle(k, step) {
  lock(AGENT_LANDED);
  if
  :: step == 0
  :: step >= fence ->
     // enters_in_time, with begun()
     now = current;
     seen = (agent_gate != EMPTY -> agent_gate : gate);
     in_time = step > (now < seen || now <= handled -> now : now - 1)
  :: step != 0 && step < fence ->
#ifdef MUTANT_NO_LOOK_AT_ENTRY
     in_time = 1
#else
     fence = step;
     publish();
     now = current;
     in_time = now < step
#endif
  fi;
  d_step {
#ifdef LAPSES
#ifndef MUTANT_SETTLES_LAPSED
    in_time = in_time && promised_in == generation;
#endif
    MUST(!in_time || promised_in == generation, settled_after_lapse);
#endif
    if
    :: in_time ->
       MUST(begun < step, entered_too_late);
       effective[k] = step;
       ahead = ahead | (1 << k)
    :: else
    fi;
    now = 0;
    seen = 0;
    in_time = 0;
    promised = NEVER;
    fence = NEVER
  }
  publish();
  unlock(AGENT_LANDED)
}

proctype agent() {
  byte k = 1;
  byte now, seen, step, last;
#ifdef LAPSES
  byte promised_in;
  bool lapsed_once;
#endif
  bool in_time;
  do
  :: k <= SWITCHES ->
#ifdef LAPSES
     if
     :: !lapsed_once ->
        lock(AGENT_LANDED);
        d_step { lapse_(); off_next = 1; lapsed_once = 1 }
        publish();
        d_step { AGENT_LANDED -> locked = 0; lapse_is_out = off_next }
     :: skip
     fi;
     promised_in = generation;
#endif
     if
     :: promise(1)
     :: promise(2)
     :: skip  // nothing promised: it gave up, or came back
     fi;
     if
     :: step = 0  // an abort
     :: promised != NEVER -> step = promised
     :: promised != NEVER -> step = promised + 1
     :: promised == NEVER -> select(step : 1 .. S)
     fi;
     if
     :: step != 0 && step <= last -> step = last + 1
     :: else
     fi;
     last = (step != 0 -> step : last);
#ifdef LAPSES
     if
     :: !lapsed_once ->
        lock(AGENT_LANDED);
        d_step { lapse_(); off_next = 1; lapsed_once = 1 }
        publish();
        d_step { AGENT_LANDED -> locked = 0; lapse_is_out = off_next }
     :: skip
     fi;
#endif
     settle(k, step);
     step = 0;
     k++
  :: else -> break
  od
}

init {
  atomic {
    run memory();
    run trainer();
    run agent()
  }
}
