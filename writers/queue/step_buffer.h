// SPDX-License-Identifier: Apache-2.0
// Groups records by step; they arrive in any order. Pure; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "control/step.h"
#include "writers/queue/abandoned_output.h"
#include "writers/queue/record.h"

namespace gradmon {

class StepBuffer {
 public:
  // A record of a step that is already closed is counted as lost.
  void add(const std::vector<Record>& records);

  // Number of records held for that step.
  std::size_t count(Revision revision, Step step) const;

  // Returns the step's records, sorted by kind and then sequence; valid until the next call of any
  // member. Earlier steps that were never closed are lost.
  std::vector<Record>& close(Revision revision, Step step);

  // Drops all held records and counts them as lost.
  void clear();

  std::size_t held() const { return held_; }
  const RowsByKind& held_by_kind() const { return held_by_kind_; }
  std::uint64_t lost() const { return lost_; }

 private:
  using Key = std::pair<std::uint64_t, std::int64_t>;  // revision, step

  // Usually one entry.
  std::map<Key, std::vector<Record>> steps_;
  std::vector<Record> closed_;
  std::vector<Record> spare_;  // an empty vector with capacity, for the next step
  Key last_{0, -1};            // the step closed last
  std::size_t held_ = 0;
  RowsByKind held_by_kind_{};
  std::uint64_t lost_ = 0;
};

}  // namespace gradmon
