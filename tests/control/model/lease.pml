// SPDX-License-Identifier: Apache-2.0
// One lease, with counters: a coordinator that drops a member has outlasted its lease.
// agreement.pml takes this as a fact. README.md.
//
// A tick is a third of a lease or more: a lease lasts LEASE ticks from when the
// acknowledged Progress was sent, the coordinator waits PATIENCE ticks from when it
// heard the newest. A message takes as long as it likes.
//
// RESTARTS   the coordinator dies once and comes back: all count as heard then
// EVICTS     the member is evicted: no acknowledgement from then on
// NEW_EPOCH  a second hub, without the log, waits PATIENCE ticks from its start; the
//            first goes on, and looks at its lock from time to time
// MUTANT_LEASE_FROM_ARRIVAL  the lease counts from when the acknowledgement came
// MUTANT_EVICTED_IS_HEARD    an evicted member is acknowledged as long as it speaks
// MUTANT_PATIENCE_AS_LEASE   PATIENCE is no longer than a lease, both counted from their own messages
// MUTANT_RENEWS_UNCHECKED    the first hub acknowledges without having looked at its lock since Progress came

#ifndef LEASE
#define LEASE 2
#endif
#ifndef PATIENCE
#define PATIENCE 3
#endif
#define LONG_AGO (LEASE + 1)

byte left_ = LEASE;          // ticks until the member's lease has run out
byte waits = PATIENCE;       // ticks until the coordinator drops it
byte age;                    // of the Progress on its way, in ticks since it was sent
byte stage;                  // 0 none, 1 sent, 2 heard (the lock not looked at since), 3 may be acknowledged, 4 acknowledged
bool dropped, evicted, down, restarted;
#ifdef NEW_EPOCH
bool second;                 // the second hub holds the lock
bool first_dead;
#define CHECKED (!second)
#else
#define CHECKED true
#endif

bool drop_within_lease, goal_out_of_reach;
#define MUST(condition, broken) broken = !(condition); assert(!broken)

proctype time() {
end:
  do
  :: d_step {
       true ->
       left_ = (left_ > 0 -> left_ - 1 : 0);
       waits = (waits > 0 && !down -> waits - 1 : waits);
       age = (stage != 0 && age < LONG_AGO -> age + 1 : age)
     }
  od
}

proctype member() {
end:
  do
  :: d_step { stage == 0 -> stage = 1; age = 0 }
  :: d_step { stage != 0 -> stage = 0; age = 0 }  // lost
  :: d_step {
       stage == 4 ->
#ifdef MUTANT_LEASE_FROM_ARRIVAL
       left_ = LEASE;
#else
       left_ = (age < LEASE && LEASE - age > left_ -> LEASE - age : left_);
#endif
       stage = 0;
       age = 0;
       MUST(!dropped || left_ == 0, drop_within_lease)
     }
  od
}

#define SPEAKS (!down && !dropped)

#ifdef NEW_EPOCH  // the drop is the second hub's: what is on opens without the member
#define FIRST_RUNS true
#define WAITED second
#else
#define FIRST_RUNS SPEAKS
#define WAITED true
#endif
#ifdef MUTANT_RENEWS_UNCHECKED
#define LOOKED true
#else
#define LOOKED CHECKED
#endif
#ifdef MUTANT_EVICTED_IS_HEARD
#define SPARED true
#define HEEDED (!evicted)
#else
#define SPARED false
#define HEEDED (!evicted)
#endif

proctype coordinator() {
end:
  do
  :: d_step {
       stage == 1 && FIRST_RUNS ->
       stage = 2;
#ifndef NEW_EPOCH
       waits = (HEEDED -> PATIENCE : waits)
#endif
     }
  :: d_step { stage == 2 && FIRST_RUNS && LOOKED -> stage = 3 }
  :: d_step { stage == 3 && FIRST_RUNS && (!evicted || SPARED) -> stage = 4 }
  :: d_step { waits == 0 && !down && !dropped && WAITED -> dropped = 1; MUST(left_ == 0, drop_within_lease) }
#ifdef RESTARTS
  :: d_step { !down && !restarted && !dropped -> down = 1; restarted = 1 }
  :: d_step { down -> down = 0; waits = PATIENCE; stage = (stage == 2 || stage == 3 -> 1 : stage) }
#endif
#ifdef EVICTS
  :: d_step { !evicted && !dropped -> evicted = 1; waits = PATIENCE }
#endif
#ifdef NEW_EPOCH
  :: d_step { !second -> second = 1; waits = PATIENCE }
#endif
  od
}

#ifdef GOAL
proctype goal() {
end:
  d_step { dropped -> MUST(false, goal_out_of_reach) }
}
#endif

init {
  atomic {
    run time();
    run member();
#ifdef GOAL
    run goal();
#endif
    run coordinator()
  }
}
