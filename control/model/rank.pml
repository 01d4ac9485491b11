// SPDX-License-Identifier: Apache-2.0
// A rank of agreement.pml: its training thread (step_gate), its agent (member) and
// its disk thread. Included there.

// --- Training thread. ---

// The collective in a step: nobody ends it before all have begun it.
#define BEGUN_BY(j, i) (life[j] == gone || !OF_REIGN(j) || current[j] >= current[i])
#ifdef COUPLED
#define STEP_ENDED ALL(BEGUN_BY, i)
#else
#define STEP_ENDED true
#endif

#ifdef COUPLED
#define END_STEP(i) ended = MORE(ended, current[i])
#else
#define END_STEP(i) skip
#endif

inline begin(i) {
  END_STEP(i);
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
  END_STEP(i);
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
#if defined(MUTANT_TRAINER_ANSWERS)  // not while it is in the collective of a step
#define TAKES(r) (PREPARED(r) && r != open_[i] && (current[i] == S || STEP_ENDED))
#elif defined(MUTANT_ANSWERS_ANEW)
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
