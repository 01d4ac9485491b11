// SPDX-License-Identifier: Apache-2.0
// What gradmonctl asks of a job and what the job answers. The values; how they
// travel is in messages.h, the asking end in control/client/command_client.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "control/agree/dry_run.h"
#include "control/agree/journal.h"

namespace gradmon {

enum class CommandVerb : std::uint8_t {
  status,
  on,
  off,
  set,
  history,
  verdict,
  config,
  dry_run,
  targets,
  dry_run_targets,
  cancel,
  evict
};

struct Command {
  CommandVerb verb = CommandVerb::status;
  std::string request_id;                     // the same id is answered again, changing nothing
  std::string by;                             // "user@host pid 123"
  std::optional<std::int64_t> at;             // on: not before this step
  std::optional<std::int64_t> collect_times;  // on
  std::optional<std::int64_t> step_interval;  // on
  // set, dry_run, dry_run_targets: key or JSON pointer, value as JSON text
  std::vector<std::pair<std::string, std::string>> edits;
  std::optional<std::int64_t> rank = {};  // evict
  std::string config_text = {};           // dry_run_targets: edit this, "" for the job's config
};

// How a command ended; the numbers are gradmonctl's exit codes.
enum class CommandOutcome : std::uint8_t {
  done = 0,
  failed = 1,  // rejected, superseded, static mode
  not_allowed = 5,
  invalid_config = 6,  // nothing was written
  partial = 7,         // only some ranks, or not in time
};

struct CommandReply {
  CommandOutcome outcome = CommandOutcome::done;
  std::string message;  // one line for people; why, where it is not `done`
  // on, off, set, verdict: what became of the change with this request id.
  Revision revision;     // 0 until it is proposed
  bool settled = false;  // the verdict is in (or no change was needed)
  bool applied_by_all = false;
  std::int64_t effective_step = -1;
  std::optional<Status> status;       // verbs status, config; of targets without the ranks
  std::vector<HistoryEntry> history;  // verb history
  std::string config_text;            // verb config: the text in force, as the job read it
  // verb dry_run, what `set` would do: the text before and after (config_text), the meaning on each rank.
  std::string config_before;
  std::vector<DryRunResult::Answer>
      rank_answers;  // and of targets, dry_run_targets: what each watches, would watch
};

}  // namespace gradmon
