// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <tl/expected.hpp>
#include <variant>
#include <vector>

#include "control/agree/message.h"
#include "control/agree/plan.h"
#include "control/agree/wall_time.h"

namespace gradmon {

// A revision is about to be asked about: its number is never given to another plan.
struct AskedEntry {
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

// A member that is none any more; or, evicted, will be none in 15 s.
struct DepartureEntry {
  enum class How : std::uint8_t { left, dropped, evicted };
  Rank rank;
  How how = How::left;
  Step last;       // the last step heard of
  std::string by;  // who has evicted it
};

// The config is about to be written by this request; `config_sha256` is of what is written.
struct RequestEntry {
  std::string request_id;
  std::string config_sha256;
};

// A plan has run to its end on all ranks: nothing is left of it to be written back.
struct WrittenBackEntry {
  Revision revision;
};

using LogEntry =
    std::variant<AskedEntry, Verdict, JoinedEntry, DepartureEntry, RequestEntry, WrittenBackEntry>;

// Where the coordinator keeps what must survive its own death. One thread.
class DecisionLog {
 public:
  virtual ~DecisionLog() = default;
  // Returns when the entry survives the death of this process. The error means:
  // it is not in the log, and a later reader will not see it.
  virtual tl::expected<void, std::string> append(const LogEntry& entry) = 0;
};

// Keeps nothing: of tests, and of a hub without a directory.
class NullDecisionLog : public DecisionLog {
 public:
  tl::expected<void, std::string> append(const LogEntry&) override { return {}; }
};

}  // namespace gradmon
