// SPDX-License-Identifier: Apache-2.0
// What was collected in a history, and counts: judged without asking those who
// have collected it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "control/agree/plan.h"

namespace gradmon {

// The rows of one step of one process, with the step's end mark.
struct Row {
  std::string by;  // the process
  std::string epoch;
  std::uint64_t revision = 0;
  // Of a process that the coordinator has dropped, from a later step than it had
  // heard of: may stand under an older revision than the rows of others.
  bool unheard = false;
};

class Rows {
 public:
  void add(Step step, Row row) { rows_[step.value].push_back(std::move(row)); }
  // The process was dropped; `heard` is the last step that is known of it.
  void mark_unheard(const std::string& by, Step heard);
  // "" where no step is collected under two revisions.
  std::string conflict() const;

 private:
  std::map<std::int64_t, std::vector<Row>> rows_;
};

// Whether a plan collects a step: the definition, said again, not by asking Schedule.
bool is_collected(const Verdict& commit, Step step);

}  // namespace gradmon
