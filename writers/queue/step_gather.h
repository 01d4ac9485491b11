// SPDX-License-Identifier: Apache-2.0
// Gathers records, which arrive in any order, into steps. Pure; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "control/step.h"
#include "writers/queue/given_up.h"
#include "writers/queue/record.h"

namespace gradmon {

class StepGather {
 public:
  // Records of a step that was closed before are late: counted, not kept.
  void add(const std::vector<Record>& records);

  // Records held of that step.
  std::size_t count(Revision revision, Step step) const;

  // The step's records, sorted by kind and then sequence; they are valid until
  // the next call of any member. Steps before it that were never closed are
  // lost with this.
  const std::vector<Record>& close(Revision revision, Step step);

  // Drops all that is held, as lost.
  void clear();

  std::size_t held() const { return held_; }
  const RowsByKind& held_by_kind() const { return held_by_kind_; }
  std::uint64_t lost() const { return lost_; }

 private:
  using Key = std::pair<std::uint64_t, std::int64_t>;  // revision, step

  // Few: usually one.
  std::map<Key, std::vector<Record>> steps_;
  std::vector<Record> closed_;
  std::vector<Record> spare_;  // emptied, for the next step
  Key last_{0, -1};            // closed last
  std::size_t held_ = 0;
  RowsByKind held_by_kind_{};
  std::uint64_t lost_ = 0;
};

}  // namespace gradmon
