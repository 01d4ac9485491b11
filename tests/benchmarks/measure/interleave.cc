// SPDX-License-Identifier: Apache-2.0
#include "tests/benchmarks/measure/interleave.h"

#include <time.h>

namespace gradmon {

double seconds_now(TimeBase spent) {
  timespec now{};
  clock_gettime(spent == TimeBase::wall ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

Rounds interleave(int rounds, TimeBase spent, const std::vector<Task>& tasks) {
  Rounds done;
  done.seconds.resize(tasks.size());
  for (const Task& task : tasks) {
    if (task.prepare) task.prepare();
    task.run();
  }
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      const std::size_t turn = round % 2 == 0 ? i : tasks.size() - 1 - i;
      if (tasks[turn].prepare) tasks[turn].prepare();
      const double begin = seconds_now(spent);
      tasks[turn].run();
      done.seconds[turn].push_back(seconds_now(spent) - begin);
    }
  }
  return done;
}

std::vector<double> Rounds::ratios(std::size_t over, std::size_t under) const {
  std::vector<double> made;
  for (std::size_t round = 0; round < seconds[over].size(); ++round) {
    made.push_back(seconds[over][round] / seconds[under][round]);
  }
  return made;
}

}  // namespace gradmon
