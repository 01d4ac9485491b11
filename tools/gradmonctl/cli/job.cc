// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/cli/job.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "control/host/child_process.h"
#include "tools/gradmonctl/cli/printable.h"

namespace gradmon {

void add_job_options(Arguments& arguments, JobSelector& selector) {
  arguments.push_back({"--endpoint", &selector.endpoint,
                       "the job, as ipc://PATH or tcp://HOST:PORT\n(default: GRADMON_ENDPOINT, else the one "
                       "live job\nof that name or with that output directory)",
                       "ENDPOINT"});
  arguments.push_back({"--job", &selector.job,
                       "the job's name or launch id, as `gradmonctl jobs` lists them\n(default: GRADMON_JOB)",
                       "NAME"});
  const bool first = std::none_of(arguments.begin(), arguments.end(),
                                  [](const Argument& other) { return other.name.front() != '-'; });
  arguments.push_back({first ? "RUN,--output-dir" : "--output-dir", &selector.output_dir,
                       "the job's output directory" + std::string(first ? "; also: --output-dir RUN" : "") +
                           "\n(default: MONITOR_OUTPUT_DIR, else ./monitor_output,\n"
                           "else that of your only live job)",
                       "RUN"});
  arguments.push_back({"--keys", &selector.keys,
                       "the directory of keys, for a TCP endpoint\n(default: GRADMON_KEYS, else "
                       "~/.config/gradmon/keys if it exists)",
                       "DIR"});
}

namespace {

std::string author() {
  const passwd* user = getpwuid(geteuid());
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '?';
  return (user != nullptr ? std::string(user->pw_name) : "uid " + std::to_string(geteuid())) + "@" +
         host.data() + " pid " + std::to_string(getpid());
}

}  // namespace

Command make_command(CommandVerb verb) {
  Command command;
  command.verb = verb;
  command.request_id = random_hex(16);
  command.by = author();
  return command;
}

int report_failure(const tl::expected<CommandReply, std::string>& reply, const Console& console) {
  if (!reply) {
    console.err << "gradmonctl: " << printable_lines(reply.error(), "\n  ") << '\n';
    return kExitNoAnswer;
  }
  if (reply->outcome == CommandOutcome::done) return kExitDone;
  console.err << "gradmonctl: "
              << (reply->message.empty() ? "the job refused" : printable_lines(reply->message, "\n  "))
              << '\n';
  return static_cast<int>(reply->outcome);
}

tl::expected<Status, int> ask_status(const AskJob& ask, const Console& console) {
  auto reply = ask(make_command(CommandVerb::status), kAnswerTime);
  if (const int code = report_failure(reply, console); code != kExitDone) return tl::make_unexpected(code);
  if (reply->status) return std::move(*reply->status);
  console.err << "gradmonctl: the job's answer has no status\n";
  return tl::make_unexpected(kExitFailed);
}

namespace {

MatchCounts ask_matching(const Command& command, const AskJob& ask) {
  const auto reply = ask(command, kAnswerTime);
  return reply ? match_counts(*reply) : MatchCounts();
}

}  // namespace

MatchCounts match_counts(const CommandReply& tried) {
  MatchCounts matching;
  for (const DryRunResult::Answer& answer : tried.rank_answers) {
    if (answer.known && answer.objection.empty()) matching[answer.rank.value] = answer.targets.counts.watched;
  }
  return matching;
}

MatchCounts matching_with(const std::vector<std::pair<std::string, std::string>>& edits, const AskJob& ask) {
  Command command = make_command(CommandVerb::dry_run_targets);
  command.edits = edits;
  return ask_matching(command, ask);
}

// Ranks count matching targets only in a dry run, so this makes a dry run of the plan in force.
MatchCounts matching_now(const AskJob& ask) {
  const auto config = ask(make_command(CommandVerb::config), kAnswerTime);
  if (!config || config->config_text.empty()) return {};
  Command command = make_command(CommandVerb::dry_run_targets);
  command.config_text = config->config_text;
  return ask_matching(command, ask);
}

std::string matching_text(std::int64_t count) {
  return std::to_string(count) + (count == 1 ? " target matches" : " targets match");
}

}  // namespace gradmon
