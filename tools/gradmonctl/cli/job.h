// SPDX-License-Identifier: Apache-2.0
// How commands name, find and ask a job. Between them and the network are AskJob and LiveJob; tests
// substitute a fake job.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "control/aliases.h"
#include "control/hub/transport/command_client.h"
#include "control/hub/transport/curve_keys.h"
#include "control/wire/command.h"
#include "tools/gradmonctl/cli/command_line.h"
#include "tools/gradmonctl/cli/console.h"

namespace gradmon {

// The options that designate a job; "" if not given.
struct JobSelector {
  std::string endpoint;
  std::string output_dir;
  std::string keys = {};  // a directory
  std::string job = {};   // its name or launch id
};

// Adds the options --endpoint, --job, --output-dir and --keys, which fill in `selector`. If `arguments` has
// no positional argument, adds the output directory as one: RUN.
Arguments with_job_options(Arguments arguments, JobSelector& selector);

// Sends a command and waits for the reply, at most for the given time, as CommandClient::ask does. The error:
// no answer.
using AskJob = std::function<Result<CommandReply>(const Command&, std::chrono::milliseconds)>;

// The clock of the commands; tests substitute a fake.
struct CommandClock {
  std::function<std::chrono::steady_clock::time_point()> now;
  std::function<void(std::chrono::milliseconds)> sleep;
};

inline constexpr std::chrono::milliseconds kAnswerTime{5000};

// A new command with a random request id and this process as its author.
Command make_command(CommandVerb verb);

// The exit code for a reply. Without an answer, or if its outcome is not "done", prints the cause to
// `console.err`; otherwise prints nothing and returns kExitDone.
int report_failure(const Result<CommandReply>& reply, const Console& console);

// Asks for the status. The error is the exit code; the cause has been printed to `console.err`.
tl::expected<Status, int> ask_status(const AskJob& ask, const Console& console);

// A target is a name of the model that the config's `targets` match. A series is one
// kind of record of one name; ranks watch series. All commands count and print matching
// targets with these functions, so that their numbers agree.
using MatchCounts = std::map<int, std::int64_t>;  // rank to count; a rank that gave no count is absent

// The ranks' answers to a dry run (CommandVerb::dry_run_targets).
MatchCounts match_counts(const CommandReply& tried);
// Asks the job how many targets would match under its config with `edits`.
MatchCounts matching_with(const std::vector<std::pair<std::string, std::string>>& edits, const AskJob& ask);
// Asks the job how many targets match under the plan in force.
MatchCounts matching_now(const AskJob& ask);

// "12 targets match"
std::string matching_text(std::int64_t count);

// --output-dir, else MONITOR_OUTPUT_DIR, else ./monitor_output.
std::string output_directory(const JobSelector& selector);

struct JobLookupError {
  int code = kExitNoAnswer;  // kExitUsage: several jobs; kExitNotAllowed: access is denied
  std::string message;       // readable; may have several lines
};

// --job, else GRADMON_JOB if --output-dir is not given; "" if neither names a job.
std::string chosen_name(const JobSelector& selector);

// The endpoint of the job: --endpoint, else the job of --job or --output-dir, else GRADMON_ENDPOINT, else the
// job of GRADMON_JOB or the output directory. Without --output-dir, searches a name among this user's jobs on
// this host, then in the output directory (.gradmon/jobs), which also lists jobs of other hosts. If nothing
// chooses a job and ./monitor_output has none, takes the only live job of this user on this host, and sets
// `*taken` to a sentence that names it.
tl::expected<std::string, JobLookupError> find_endpoint(const JobSelector& selector,
                                                        std::string* taken = nullptr);

// Names the only live job of this user on this host; "" if there is none, or several.
std::string only_live_job();

// The decisions of find_endpoint(), pure.
// The jobs with this name; if none has it, the jobs with this launch id.
std::vector<JobEntry> jobs_named(const std::string& name, std::vector<JobEntry> jobs);
// The endpoint of the only job; an error for none or several. A job that has ended counts only without
// another: it may have been restarted. `which` describes the search in messages: "named train.py".
tl::expected<std::string, JobLookupError> only_job(const LiveJobs& live, const std::string& which);

// The directory of keys for an endpoint; "" for none. --keys, else GRADMON_KEYS, else
// $XDG_CONFIG_HOME/gradmon/keys (or ~/.config/gradmon/keys) if it exists, but not for a
// loopback endpoint with GRADMON_INSECURE_LOOPBACK=1.
std::string key_directory(const JobSelector& selector, const std::string& endpoint);

// The client keys from that directory; nullopt for a Unix socket, or without a directory. The error: the keys
// in the directory are unusable.
Result<std::optional<ClientKeys>> find_keys(const JobSelector& selector, const std::string& endpoint);

// The reason why this user may not read the history of the newest job in an output directory
// (command_client.h); "" if the user may, or without a history.
std::string history_denial(const fs::path& output_dir);

// Like with_job(). But without a live job, if the files in the output directory may replace it, runs
// `command` with an AskJob that fails. `has_files`: true if such files exist.
int with_job_or_files(const JobSelector& selector, const Console& console,
                      const std::function<bool()>& has_files,
                      const std::function<int(const AskJob&)>& command);

// Wraps `ask`. Does not send a command too large for one message: the reply is CommandOutcome::failed, and
// its message names both sizes.
AskJob bounded_ask(AskJob ask);

// Wraps `ask`. While a hub answers with CommandOutcome::no_lead, as a restarted hub does until its ranks are
// back, sends the same command again, until the time is over. The error is then the hub's message.
AskJob patient_ask(AskJob ask, CommandClock clock);

CommandClock system_clock();

// Finds the job and its keys. The returned function sends the first command when called. `taken`: see
// find_endpoint().
tl::expected<AskJob, JobLookupError> connect(const JobSelector& selector, const Console& console,
                                             std::string* taken = nullptr);
// Returns a function that also prints both releases to `console.err`, once, if a command other than status
// and off is for a job of another release.
AskJob name_other_release(AskJob ask, const Console& console);
// Returns a function that answers every command with the error `problem`.
AskJob failing_ask(const JobLookupError& problem);

// Prints `problem` to `console.err`. Returns its exit code.
int report_no_job(const JobLookupError& problem, const Console& console);

// Prints the chosen job, if `taken` names it.
void report_taken(const std::string& taken, const Console& console);

// Runs `command` with the job at `selector`; calls report_no_job() without a job. Returns the exit code.
int with_job(const JobSelector& selector, const Console& console,
             const std::function<int(const AskJob&)>& command);

// A live job for `gradmonctl watch` and `alerts --follow`; tests substitute a fake job.
struct LiveJob {
  AskJob ask;
  std::function<std::optional<Status>(std::chrono::milliseconds)> next_state;  // waits first; nullopt: none
  std::function<std::optional<bool>()> lives;                                  // nullopt: unknown
  std::function<bool()> interrupted;  // by the user; called only after the first answer
  std::function<WallTime()> now;
  std::function<void(std::chrono::milliseconds)> pause = {};  // ends early when the user interrupts
};

// The job has ended when its hub is missing in this number of checks in a row: a killed hub is restarted
// within a second.
inline constexpr int kLooksBeforeEnd = 2;

// Runs `command` with the job at `selector`, over the real network, clock and files; calls report_no_job()
// without a job. Returns the exit code. Each call of `next_state` asks the job. After the first call of
// `interrupted`, SIGINT no longer ends this process.
int with_live_job(JobSelector selector, const Console& console,
                  const std::function<int(const LiveJob&)>& command);

}  // namespace gradmon
