// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "tests/whole/hostile/keyed_job.h"

namespace gradmon {

// What must hold during and after every attack on a job. Checks with Catch.
class Unharmed {
 public:
  // Before the attack.
  explicit Unharmed(const KeyedJob& job);

  // Training goes on with the memory, descriptors and threads it had, under the
  // hub it had; that hub is small; honest clients are served by both ways.
  void check(const char* what) const;
  // Training alone: in floods that keep everybody out of TCP.
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
