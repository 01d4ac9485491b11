// SPDX-License-Identifier: Apache-2.0
// The comparisons of AnomalyRankDivergence, for the status of a job. A value. each_field() numbers the fields
// for the wire (control/wire/field_codec.h): a new field needs a line there, and its number must never be
// reused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace gradmon {

// One comparison covers one kind of one step of one group of ranks.
struct ReplicasCompared {
  std::int64_t groups = 0;        // compared groups
  std::int64_t ranks = 0;         // ranks of all groups that have sent values of their replicas
  std::int64_t last_step = -1;    // the newest step compared; -1: none
  std::uint64_t comparisons = 0;  // so far, with all or only some ranks of the group
  std::uint64_t incomplete = 0;   // comparisons without some ranks of the group
  std::uint64_t unresolved = 0;   // differing buckets whose values did not arrive
  // Ranks that are not compared at present, with the reason: "rank 0: …". At most kMostNotCompared groups.
  std::vector<std::string> not_compared;

  static constexpr std::size_t kMostNotCompared = 16;

  template <typename Self, typename Visit>
  static void each_field(Self& self, Visit visit) {
    visit(1, self.groups);
    visit(2, self.ranks);
    visit(3, self.last_step);
    visit(4, self.comparisons);
    visit(5, self.incomplete);
    visit(6, self.unresolved);
    visit(7, self.not_compared);
  }
};

}  // namespace gradmon
