// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "tests/whole/hostile/keyed_job.h"

namespace gradmon {

// Checks with Catch2 that an attack does not harm a job: call it during and after the attack.
class HarmCheck {
 public:
  // Before the attack: records the figures of rank 0, and its hub.
  explicit HarmCheck(const KeyedJob& job);

  // check_training(); the same hub runs, and is small; honest clients are served over
  // TCP and over the Unix socket.
  void check(const char* what) const;
  // Training goes on with the memory, descriptors and threads it had. For floods that
  // keep all clients out of TCP.
  void check_training(const char* what) const;

 private:
  struct Figures {
    double resident_mib = 0;
    std::size_t descriptors = 0;
    std::size_t threads = 0;
  };
  static Figures of(pid_t process);

  const KeyedJob& job_;
  const Figures rank0_;
  const pid_t hub_;
};

}  // namespace gradmon
