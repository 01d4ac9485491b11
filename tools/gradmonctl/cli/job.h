// SPDX-License-Identifier: Apache-2.0
// The interface between commands and the network; tests substitute a fake job.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

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
void add_job_options(Arguments& arguments, JobSelector& selector);
inline Arguments with_job_options(Arguments arguments, JobSelector& selector) {
  add_job_options(arguments, selector);
  return arguments;
}

// Sends a command and waits for the reply, at most for the given time, as CommandClient::ask does. The error:
// no answer.
using AskJob =
    std::function<tl::expected<CommandReply, std::string>(const Command&, std::chrono::milliseconds)>;

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
int report_failure(const tl::expected<CommandReply, std::string>& reply, const Console& console);

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

}  // namespace gradmon
