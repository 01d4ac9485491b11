// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <vector>

#include "control/step.h"
#include "writers/queue/layout.h"
#include "writers/queue/record.h"

namespace gradmon {

// The records of the last collected step. The memory sink sets them, the program reads them. Any
// thread.
class LastStep {
 public:
  struct Content {
    Layout layout;                // of the revision
    Step step{-1};                // -1: no step so far
    std::vector<Record> records;  // by kind, then sequence
  };

  Content content() const;
  // A further call for the same step adds its records.
  void set(const Layout& layout, Step step, const std::vector<Record>& records);

 private:
  mutable std::mutex mutex_;
  Content content_;  // guarded by mutex_
};

}  // namespace gradmon
