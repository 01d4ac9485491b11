// SPDX-License-Identifier: Apache-2.0
// The commands of gradmonctl to a job, and the job's replies. Values; messages.h encodes them, and
// control/hub/transport/command_client.h sends them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "control/agree/target_status.h"
#include "control/agree/journal.h"
#include "control/alerts/alert_report.h"

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
  evict,
  alerts,
  unknown = 255  // of a later release
};

// This program's release, as "0.2.0". The first releases did not send theirs.
std::string own_release();

struct Command {
  CommandVerb verb = CommandVerb::status;
  std::string request_id;                     // a repeated id is answered again and changes nothing
  std::string by;                             // "user@host pid 123"
  std::optional<std::int64_t> at;             // on: not before this step
  std::optional<std::int64_t> collect_times;  // on
  std::optional<std::int64_t> step_interval;  // on
  // set, dry_run, dry_run_targets: key or JSON pointer, value as JSON text
  std::vector<std::pair<std::string, std::string>> edits;
  std::optional<std::int64_t> rank = {};  // evict; alerts: only this rank's
  std::string config_text = {};           // dry_run_targets: the config to edit; "" for the job's
  std::uint64_t after = 0;                // alerts: only those with a higher number
  std::string release = own_release();    // of the asking program; "": unknown
  bool force = false;                     // set, dry_run: accept unknown keys and ops, too
};

// The result of a command. The numbers are gradmonctl's exit codes.
enum class CommandOutcome : std::uint8_t {
  done = 0,
  failed = 1,   // rejected, superseded, static mode
  no_lead = 4,  // this hub has no rank yet, or does not reach the lead hub: the command had no effect
  not_allowed = 5,
  invalid_config = 6,  // nothing was written
  incomplete = 7,      // done on some ranks only, or not in time
};

struct CommandReply {
  CommandOutcome outcome = CommandOutcome::done;
  std::string message;  // one line for people; the reason if not `done`
  // Verbs on, off, set, verdict: the state of the change with this request id.
  Revision revision;     // 0 until it is proposed
  bool settled = false;  // the verdict is known, or no change was needed
  bool applied_by_all = false;
  std::int64_t effective_step = -1;
  std::optional<Status> status;       // verbs status, config; verb targets: without the ranks
  std::vector<HistoryEntry> history;  // verb history
  std::string config_text;            // verb config: the text in force, as the job read it
  // Verb dry_run: the text before the edits; config_text is the text after them.
  std::string config_before;
  // Verbs dry_run, dry_run_targets: the targets that each rank would watch. Verb targets: those it watches.
  std::vector<DryRunResult::Answer> rank_answers;
  // Verb alerts, by number: the newest, or with `after` the first ones after it, as many as one answer holds;
  // and the number of alerts that the ranks have raised in total.
  std::vector<Alert> alerts;
  std::uint64_t raised_alerts = 0;
  std::string release = own_release();  // of the answering hub; "": unknown
  bool collects_nothing = false;        // on, set: the config it switches on enables no kind of row
};

inline CommandReply failed_reply(CommandOutcome outcome, std::string message) {
  CommandReply reply;
  reply.outcome = outcome;
  reply.message = std::move(message);
  return reply;
}

}  // namespace gradmon
