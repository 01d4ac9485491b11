// SPDX-License-Identifier: Apache-2.0
// The rows of a history that count. They are checked without asking the code that
// has collected them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "control/agree/plan.h"

namespace gradmon {

// The rows of one collected step of one process.
struct Row {
  std::string process_id;
  std::string epoch;
  std::uint64_t revision = 0;
  // The coordinator could not know of this step: its process was dropped, or was
  // never known. The rows may be under an older revision than those of other ranks.
  bool unknown = false;
};

class Rows {
 public:
  void add(Step step, Row row) { rows_[step.value].push_back(std::move(row)); }
  // The process was dropped. `heard`: the last step that the coordinator knows of it.
  void mark_unknown(const std::string& process_id, Step heard);
  // The first step that counts under two revisions; "" if there is none.
  std::string conflict() const;

 private:
  std::map<std::int64_t, std::vector<Row>> rows_;
};

// Whether a plan collects a step. Implements the definition a second time, without Schedule.
bool is_collected(const Verdict& commit, Step step);
// How many steps from this one on a plan collects if no other follows.
std::int64_t collected_from(const Verdict& commit, Step from);

}  // namespace gradmon
