// SPDX-License-Identifier: Apache-2.0
// The two words of control/agree/step_gate in Promela, store by store under total
// store order: a store goes into the thread's buffer and reaches memory later;
// seq_cst, and every lock and unlock, waits until the buffer is empty. README.md
// says what is atomic.
//
// S steps are begun, the agent takes SWITCHES turns: it promises, sends Ready, and
// hears a commit or an abort; or it settles a commit that nothing had promised.
//
// MUTANT_NO_SECOND_LOOK      promise() does not read the current step again
// MUTANT_TRAINER_NOT_SEQ_CST the trainer loads the gate before its store has landed
// MUTANT_AGENT_NOT_SEQ_CST   the agent loads the step before its store has landed
// MUTANT_NO_LOOK_AT_ENTRY    a commit without a promise is entered unseen
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

// --- Ghosts. ---
byte promised = NEVER;  // Ready has been sent with this fence and its verdict is not known
byte begun;

bool promise_broken, not_the_newest_commit, change_passed_unseen, entered_too_late;
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
#define FIRST_CLOSED LESS(fence, LESS(FRONT, (end_said -> NEVER : NEXT_CHANGE(FROM + 1))))
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

proctype trainer() {
  byte n = 1;
  byte seen;
  do
  :: n <= S ->
     // try_begin
     trainer_current = n;
#ifndef MUTANT_TRAINER_NOT_SEQ_CST
     TRAINER_LANDED;
#endif
     d_step { seen = (trainer_gate != EMPTY -> trainer_gate : gate) }
     if
     :: n < seen ->
        d_step {
          MUST(end_said || n != NEXT_CHANGE(n), change_passed_unseen);
          seen = 0
        }
     :: else ->
        seen = 0;
        // begin_or_wait: again until it does not say wait
        d_step { !locked && TRAINER_LANDED && n < fence -> locked = 1 }
        // begin
        d_step {
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
          handled = n
        }
        trainer_gate = FIRST_CLOSED;
        unlock(TRAINER_LANDED)
     fi;
     begin_step(n);
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
    promised = fence;
    MUST(begun < promised, promise_broken)
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
  bool in_time;
  do
  :: k <= SWITCHES ->
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
