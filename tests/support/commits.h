// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <vector>

#include "control/agree/journal.h"

namespace gradmon {

// The committed changes. Aborted tries are left out: a rank may fail to answer in time.
inline std::vector<HistoryEntry> commits_of(std::vector<HistoryEntry> history) {
  history.erase(std::remove_if(history.begin(), history.end(),
                               [](const HistoryEntry& entry) { return entry.verdict != "commit"; }),
                history.end());
  return history;
}

}  // namespace gradmon
