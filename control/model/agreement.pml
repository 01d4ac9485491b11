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

// --- Training thread. ---

// The collective in a step: nobody ends it before all have begun it.
#define BEGUN_BY(j, i) (life[j] == gone || !OF_REIGN(j) || current[j] >= current[i])
#ifdef COUPLED
#define STEP_ENDED ALL(BEGUN_BY, i)
#else
#define STEP_ENDED true
#endif

inline begin(i) {
  current[i]++;
  for (h : 1 .. R) {
    if
    :: (ahead[i] & (1 << h)) && EFFECTIVE(EPOCH(i), h) <= current[i] ->
       MUST(EFFECTIVE(EPOCH(i), h) == current[i], commit_overtaken);
#ifdef GIVES_UP
       missed[i] = 0;
#endif
       in_force[i] = h;
       ahead[i] = ahead[i] & ~(1 << h)
    :: else
    fi
  }
  h = 0;
  MUST(EXCUSED(i) || in_force[i] == IN_FORCE(EPOCH(i), current[i]), not_the_newest_commit)
}

// --- Member: one agent thread. ---

// The gate takes what holds and stands at the fence given, in one instant.
inline settle(i, revision, stand_at) {
  if
  :: revision != 0 ->
     m = EFFECTIVE(EPOCH(i), revision) <= current[i];
     MUST(!m || EXCUSED(i), commit_missed);
     if
#ifdef GIVES_UP
     :: m -> missed[i] = 1
#endif
     :: !m -> ahead[i] = ahead[i] | (1 << revision)
     :: else
     fi;
     m = 0
  :: else
  fi;
  fence[i] = stand_at
}

// A word that all revisions up to `upto` are decided, with the newest commit among them.
inline learn(i, upto) {
  if
  :: upto > closed[i] ->
     h = NEWEST(EPOCH(i), upto);
     h = (h > NEWEST(EPOCH(i), closed[i]) -> h : 0);
#ifdef MUTANT_VERDICT_WITHOUT_PLAN
     h = (planned[i] & (1 << h) -> h : 0);
#endif
     if
     :: open_[i] <= upto -> open_[i] = 0
     :: else
     fi;
     settle(i, h, (open_[i] == 0 && life[i] != rejoining -> NEVER : fence[i]));
     h = 0;
#ifdef GIVES_UP
     unheard[i] = (life[i] == rejoining -> unheard[i] : false);
#endif
     closed[i] = upto
  :: else
  fi
}

// Fence: H = 1 beyond the step published, which may be the one begun or the next.
inline promise(i, published) {
  fence[i] = current[i] + published + 1
}

inline on_prepare(i, r, published) {
#ifdef MUTANT_VERDICT_WITHOUT_PLAN
  planned[i] = planned[i] | (1 << r);
#endif
#ifndef MUTANT_BUSY_TAKES_SECOND
  learn(i, r - 1);
#endif
#ifdef MUTANT_ANSWERS_ANEW
  if
  :: fence[i] == NEVER || open_[i] == r -> promise(i, published)
#else
  if
#ifdef MUTANT_BUSY_TAKES_SECOND
  :: true -> promise(i, published)
#else
  :: fence[i] == NEVER -> promise(i, published)
#endif
#endif
  :: else  // the start's implied promise becomes this one
  fi;
  open_[i] = r;
  if
  :: OF_REIGN(i) && r == opened[EPOCH(i)] && r > last[EPOCH(i)] && ready[i] == 0 -> ready[i] = fence[i]
  :: else
  fi;
#ifdef MUTANT_READY_WITHOUT_FENCE
  fence[i] = NEVER
#endif
}

#define AT_FENCE(i) (open_[i] != 0 && fence[i] != NEVER && current[i] + 1 >= fence[i])

inline ask_register(i, revision) { asking[i] = revision }

inline end_rejoining(i) {
  life[i] = living;
#ifdef GIVES_UP
  unheard[i] = 0;
#endif
  fence[i] = NEVER
}

inline on_register(i) {
  e = asking[i];
  asking[i] = 0;
  learn(i, e);
  if
  :: life[i] == rejoining && IN(EPOCH(i), e) == CAME_BACK -> end_rejoining(i)
  :: life[i] == rejoining && IN(EPOCH(i), e) != CAME_BACK -> ask_register(i, e + 1)
  :: else
  fi;
  e = 0
}

inline on_welcome(i) {
#ifdef MUTANT_REJOIN_FORGETS
  life[i] = living;
  fence[i] = NEVER
#else
  life[i] = rejoining;
  ask_register(i, 1)
#endif
}

inline forget(i) {
  fence[i] = NEVER;
  open_[i] = 0;
  closed[i] = 0;
  in_force[i] = 0;
  ahead[i] = 0;
  asking[i] = 0;
#ifdef GIVES_UP
  unheard[i] = 0;
  missed[i] = 0;
#endif
  current[i] = START;
#ifdef MUTANT_VERDICT_WITHOUT_PLAN
  planned[i] = 0
#endif
}

inline leave(i) {
  left_[i] = current[i] + 1;
  forget(i);
  life[i] = gone
}

inline crash(i) {
  forget(i);
  fence[i] = START + 1;
  life[i] = back
}

proctype trainer(byte i) {
end:
  do
  :: d_step { life[i] != gone && current[i] < S && current[i] + 1 < fence[i] && STEP_ENDED -> begin(i) }
#ifdef LEAVES
  :: d_step { i != 0 && life[i] == living && STEP_ENDED -> leave(i) }
#endif
  od
}

#define PREPARED(r) (life[i] == living && r <= opened[EPOCH(i)] && r > closed[i])
#if defined(MUTANT_ANSWERS_ANEW)
#define TAKES(r) PREPARED(r)
#elif defined(MUTANT_BUSY_TAKES_SECOND)
#define TAKES(r) (PREPARED(r) && r > open_[i])
#else
#define TAKES(r) (PREPARED(r) && r != open_[i])
#endif

proctype agent(byte i) {
#ifdef CRASH
  bool crashed;
#endif
end:
  do
  :: d_step { TAKES(1) -> on_prepare(i, 1, 0) }
  :: d_step { TAKES(1) -> on_prepare(i, 1, 1) }
#if R > 1
  :: d_step { TAKES(2) -> on_prepare(i, 2, 0) }
  :: d_step { TAKES(2) -> on_prepare(i, 2, 1) }
#endif
#if R > 2
  :: d_step { TAKES(3) -> on_prepare(i, 3, 0) }
  :: d_step { TAKES(3) -> on_prepare(i, 3, 1) }
#endif
#ifndef DEAF  // Decided, of any age
  :: d_step { life[i] == living && closed[i] < 1 && last[EPOCH(i)] >= 1 -> learn(i, 1) }
#if R > 1
  :: d_step { life[i] == living && closed[i] < 2 && last[EPOCH(i)] >= 2 -> learn(i, 2) }
#endif
#if R > 2
  :: d_step { life[i] == living && closed[i] < 3 && last[EPOCH(i)] >= 3 -> learn(i, 3) }
#endif
#endif
#ifndef NO_FAULTS
#ifdef MUTANT_NO_REGISTER
  :: d_step { life[i] == living && AT_FENCE(i) -> closed[i] = open_[i]; open_[i] = 0; fence[i] = NEVER }
#else
  :: d_step { life[i] == living && AT_FENCE(i) && asking[i] == 0 -> ask_register(i, open_[i]) }
#endif
#endif
  :: d_step { asking[i] != 0 && IN(EPOCH(i), asking[i]) != NOTHING -> on_register(i) }
#ifdef MUTANT_REJOIN_LEAVES_OPEN
  :: d_step { life[i] == rejoining && IN(EPOCH(i), asking[i]) == NOTHING ->
              asking[i] = 0; end_rejoining(i) }
#endif
#ifdef GIVES_UP
  :: d_step { life[i] == living && AT_FENCE(i) -> fence[i] = NEVER; unheard[i] = 1 }
  :: d_step { (life[i] == back || life[i] == welcomed || life[i] == rejoining) && fence[i] != NEVER ->
              fence[i] = NEVER; unheard[i] = 1 }
#endif
#ifdef STARTS_ON  // drop_start_hold
  :: d_step { life[i] == living && open_[i] == 0 && fence[i] != NEVER -> fence[i] = NEVER }
#endif
#ifdef CRASH
  :: d_step { i == N - 1 && !crashed && (life[i] == living || life[i] == gone) -> crash(i); crashed = 1 }
  :: d_step { life[i] == welcomed -> on_welcome(i) }
#endif
  od
}

// The disk thread: writes an Abort unless the entry is there.
#ifdef MUTANT_REJOIN_LEAVES_OPEN
#define CLOSES(i) (life[i] != rejoining)
#else
#define CLOSES(i) true
#endif

proctype disk(byte i) {
end:
  do
  :: d_step { asking[i] != 0 && IN(EPOCH(i), asking[i]) == NOTHING && CLOSES(i) ->
              IN(EPOCH(i), asking[i]) = (life[i] == rejoining -> CAME_BACK : ABORT) }
  od
}

// --- Coordinator: rank 0's agent thread, too. ---

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
#ifdef PROPOSALS
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

// The write. Who comes first wins.
#define NOT_BEGUN(j, step) (HOME(EPOCH(j)) != HOME(reign) || life[j] == gone || EXCUSED(j) || current[j] < (step))
inline decide() {
  IN(reign, opened[reign]) = verdict;
  if
  :: IS_COMMIT(reign, opened[reign]) ->
     m = EFFECTIVE(reign, opened[reign]);
     MUST(ALL(NOT_BEGUN, m), step_under_two_revisions);
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
ltl decided { <>[] (proposed == PROPOSALS && !waiting_ && IDLE && (opened[reign] == R || IS_COMMIT(reign, last[reign]))) }
#endif
ltl nobody_waits { <>[] ALL(AT_END, 0) }

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
    run coordinator_disk()
#ifdef GOAL
    ;
    run goal()
#endif
  }
}
