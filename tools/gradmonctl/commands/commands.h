// SPDX-License-Identifier: Apache-2.0
// The commands of gradmonctl as functions, for its main and for tests.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "control/agree/journal.h"
#include "control/alerts/alert_report.h"
#include "control/aliases.h"
#include "control/hub/transport/command_client.h"
#include "control/wire/command.h"
#include "tools/gradmonctl/cli/command_line.h"
#include "tools/gradmonctl/cli/console.h"
#include "tools/gradmonctl/cli/job.h"
#include "tools/gradmonctl/cli/json_rule.h"
#include "tools/gradmonctl/cli/listing.h"

namespace gradmon {

// Every command of gradmonctl, in the order of the help.
Subcommands all_subcommands();

// A request of status, watch, history or jobs.
struct ShowRequest {
  JobSelector selector;  // jobs: every job of this user on this host
  bool json = false;
  bool all = false;    // also print the whole list and whole lines in a terminal
  bool watch = false;  // status only
};

// gradmonctl status. With --watch it repeats every second, until the job does not answer or
// `console.out` fails. Returns the exit code.
int status_command(const ShowRequest& request, const AskJob& ask, const CommandClock& clock,
                   const Console& console);

// The targets of the plan in force; with `dry_run`, the targets of the job's config, or of `file`, with
// `edits`.
struct TargetsRequest {
  JobSelector selector;
  bool json = false;
  bool dry_run = false;
  std::vector<std::pair<std::string, std::string>> edits;
  std::string file;
  bool all = false;  // also print the whole list and whole lines in a terminal
};

// gradmonctl targets: lists the watched series of each rank, the names that match nothing, and the series
// that have not fired. As a dry run, lists the series that each rank would watch under another config,
// changes nothing, and returns the exit code of `set --dry-run`. Otherwise returns 7 if a rank does not
// answer.
int targets_command(const TargetsRequest& request, const AskJob& ask, const Console& console);

// gradmonctl watch: shows the status each second. Returns the exit code: 0 when the job has
// ended (its hub is gone in two checks in a row), the user interrupts, or `console.out`
// fails; 4 when the job does not answer and it is unknown whether the job has ended.
int watch_command(const ShowRequest& request, const LiveJob& job, const Console& console);

// A readable table: one line per change, in the order of arrival. Names each step if ranks applied a revision
// at different steps.
Listing history_listing(const std::vector<HistoryEntry>& history);

// The outcome of every change, as one JSON object that follows json_rule.h. A revision of 0 is null, and so
// is the on or off of a refused config file.
std::string history_json(const std::vector<HistoryEntry>& history, JsonLayout layout);

using HistoryFiles = std::function<Result<std::vector<HistoryEntry>>()>;

// gradmonctl history: prints the history in the job's answer. If the job does not answer, prints the history
// in `files`, and says so on `console.err`. Returns the exit code.
int history_command(const ShowRequest& request, const AskJob& ask, const HistoryFiles& files,
                    const Console& console);

// A table with one line for each alert of the reply, and the number of other alerts raised by the ranks.
Listing alerts_listing(const CommandReply& reply);
// A table with one line for each step and rule of the reply: its ranks, its number of series and its first
// alert. The first line of each rule comes first; the others follow by rising step.
Listing alert_groups_listing(const CommandReply& reply);

// One line, with a line feed: "2026-07-06 12:34:56 UTC  rank 3  MESSAGE".
std::string alert_line(const Alert& alert);

// One JSON object that follows json_rule.h, with the alerts in the form of control/alerts/alert_report.h.
std::string alerts_json(const CommandReply& reply, JsonLayout layout);
// The object of one alert, on one line.
std::string alert_json(const Alert& alert);

struct AlertsRequest {
  JobSelector selector;
  std::string run = {};  // an output directory, or a rank's directory in it; "": the selector's
  bool json = false;
  bool all = false;     // each alert, and whole lines in a terminal
  bool follow = false;  // then print new ones
  std::optional<std::int64_t> rank = {};
  std::string publish = {};  // of the hub's publisher: the socket that it serves
};

using AlertFiles = std::function<Result<std::vector<Alert>>()>;

// gradmonctl alerts: prints the alerts that the lead hub keeps. If the job does not answer, prints the alerts
// in `files`, and says so on `console.err`. Returns the exit code.
int alerts_command(const AlertsRequest& request, const AskJob& ask, const AlertFiles& files,
                   const Console& console);

// gradmonctl alerts --follow: prints one line for each alert, the newest kept ones first (as many as one
// answer holds), then each new one. Asks once a second, and again at once after an answer with alerts.
// Returns the exit code: 0 when the job has ended (its hub is gone in two checks in a row), the user
// interrupts, or `console.out` fails; 4 when the job does not answer and may still run elsewhere.
int follow_alerts(const AlertsRequest& request, const LiveJob& job, const Console& console);

// gradmonctl jobs: lists the jobs whose hubs replied; other hubs and `refused` go to `console.err`.
// `refused`: directories that cannot be trusted, one readable line each. Returns the exit code.
int jobs_command(const ShowRequest& request, const HubReplies& replies,
                 const std::vector<std::string>& refused, const Console& console);

// A request of cancel or evict.
struct OneShotRequest {
  JobSelector selector;
  CommandVerb verb = CommandVerb::cancel;
  std::optional<std::int64_t> rank = {};  // evict only
};

// gradmonctl cancel and evict: sends one command, and prints the job's answer to
// `console.err`. Returns the exit code.
int one_shot_command(const OneShotRequest& request, const AskJob& ask, const Console& console);

// A request of on, off or set. `command` has no request id and no author yet.
struct ChangeRequest {
  JobSelector selector;
  Command command;
  bool wait = false;
  bool dry_run = false;  // set only
  std::string file;      // set as a dry run: edit the text of this file, without a job; else ""
  std::int64_t timeout_seconds = 60;
};

// gradmonctl set --dry-run: asks the live job, and prints the lines of the config file that
// would change and the effect on each rank. Returns the exit code that `set --wait` would
// return: 1 if a rank would reject the change or no target would match, 7 if a rank does
// not answer.
int dry_run(const ChangeRequest& request, const AskJob& ask, const Console& console);

// Prints the warnings of the tried config to `console.err`.
void report_warnings(const Status& status, const Console& console);

// Prints the verdict of a dry run to `console.err`. `reply.status` must be set. Returns the exit
// code.
int report_dry_run(const CommandReply& reply, const Console& console);

// Prints the lines of `request.file` that would change, and validates the result. Asks no job. Returns the
// exit code.
int dry_run_of_file(const ChangeRequest& request, const Console& console);

// gradmonctl on, off and set. With --wait, polls for the verdict until every rank has applied it, and prints
// the effective step (nothing if no change was needed). Returns the exit code.
int change_command(const ChangeRequest& request, const AskJob& ask, const CommandClock& clock,
                   const Console& console);

// After `on` without a number of steps: prints how long the job collects, and its output per minute. Waits up
// to three seconds until every rank has applied the plan, because only then a rank knows its rows. Prints
// "unknown" instead of a figure that the job has not reported. Prints nothing if the job is off again.
void report_outlook(const AskJob& ask, const CommandClock& clock, const Console& console);

struct GetRequest {
  JobSelector selector;
  std::string key;   // "": the whole config
  std::string file;  // "": ask the job
};

// gradmonctl get: prints a job's config in force, or one value of it. Mentions a pending
// change on `console.err`. Returns the exit code.
int get_command(const GetRequest& request, const AskJob& ask, const Console& console);

// The same for a file, without a job.
int get_from_file(const GetRequest& request, const Console& console);

// gradmonctl validate: prints all errors and warnings of `request.file` to `console.err`. Returns the exit
// code: 6 for an invalid file, 1 if it cannot be read.
int validate_command(const GetRequest& request, const Console& console);

struct RunRequest {
  std::int64_t ranks = 1;
  std::vector<std::string> command;  // the words after "--"
};

struct DoctorRequest {
  JobSelector selector;
  std::string file;  // the config file; "": the live job's, else ./monitor_config.json
  bool json = false;
};

// gradmonctl doctor: reports the status of a live job, if `ask` reaches one, and checks this host for
// gradmon's requirements. Returns the exit code: 1 if a finding is a failure, for example an invalid config
// file.
int doctor_command(const DoctorRequest& request, const AskJob& ask, const Console& console);

}  // namespace gradmon
