// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "control/agree/message.h"
#include "control/agree/plan.h"
#include "control/aliases.h"
#include "gradmon/types.h"

namespace gradmon {

// A revision is about to be offered to the members. Its number is never given to another plan.
struct OfferedEntry {
  Revision revision;
  PlanPtr plan;
  WallTime at = 0;
};

// A process has become the member of a rank.
struct JoinedEntry {
  Rank rank;
  std::uint64_t incarnation = 0;
  Hello hello;  // `held` is not kept
};

// A member has left or was dropped; or it was evicted, and will be dropped in 15 s.
struct DepartureEntry {
  enum class How : std::uint8_t { left, dropped, evicted };
  Rank rank;
  How how = How::left;
  Step last;       // the member's last known step
  std::string by;  // who evicted it
};

// A plan has ended on all ranks, and its write-back is done or given up.
struct WrittenBackEntry {
  Revision revision;
};

// The first rank has applied a committed plan, and the job's log has said so.
struct AppliedEntry {
  Revision revision;
};

using LogEntry =
    std::variant<OfferedEntry, Verdict, JoinedEntry, DepartureEntry, WrittenBackEntry, AppliedEntry>;

// The entries from which Coordinator::restore() makes the same state, except the history of old revisions.
// Drops closed revisions whose plans are not among the newest `kept_bytes` of config texts. Keeps the newest
// commit, the newest commit of a user's plan, and the highest revision. Keeps at most five entries of a rank
// whose processes have joined repeatedly, and one for each epoch.
std::vector<LogEntry> compacted(const std::vector<LogEntry>& entries, std::size_t kept_bytes);

// The state of the coordinator that must survive its death. One thread.
class DecisionLog {
 public:
  virtual ~DecisionLog() = default;
  // Returns once the entry survives the death of this process. After an error the entry is not in the log,
  // and later readers do not see it.
  virtual Result<void> append(const LogEntry& entry) = 0;
};

// Keeps nothing. For tests, and for a hub without a directory.
class NullDecisionLog : public DecisionLog {
 public:
  Result<void> append(const LogEntry&) override { return {}; }
};

}  // namespace gradmon
