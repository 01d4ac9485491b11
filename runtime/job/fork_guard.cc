// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/fork_guard.h"

#include <pthread.h>

#include <mutex>
#include <set>

namespace gradmon {
namespace {

// Leaked: a process may fork while static objects are destroyed.
struct Flags {
  std::mutex mutex;
  std::set<std::atomic<bool>*> all;  // guarded by mutex
};
Flags& flags() {
  static Flags* const made = new Flags;
  return *made;
}

void before_fork() { flags().mutex.lock(); }
void in_parent() { flags().mutex.unlock(); }
void in_child() {
  for (std::atomic<bool>* flag : flags().all) flag->store(true);
  flags().mutex.unlock();
}

}  // namespace

ForkGuard::ForkGuard(std::atomic<bool>& flag) : flag_(flag) {
  static const int registered = pthread_atfork(before_fork, in_parent, in_child);
  (void)registered;
  const std::lock_guard lock(flags().mutex);
  flags().all.insert(&flag_);
}

ForkGuard::~ForkGuard() {
  const std::lock_guard lock(flags().mutex);
  flags().all.erase(&flag_);
}

}  // namespace gradmon
