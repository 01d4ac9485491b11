// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/cli/job.h"

#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "control/host/child_process.h"
#include "control/host/environment.h"
#include "control/hub/transport/bus.h"
#include "control/hub/transport/command_client.h"
#include "control/wire/messages.h"
#include "tools/gradmonctl/cli/listing.h"
#include "tools/gradmonctl/cli/printable.h"

namespace gradmon {

Arguments with_job_options(Arguments arguments, JobSelector& selector) {
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
  return arguments;
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

int report_failure(const Result<CommandReply>& reply, const Console& console) {
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

std::string output_directory(const JobSelector& selector) {
  if (!selector.output_dir.empty()) return selector.output_dir;
  const std::string chosen = environment_text("MONITOR_OUTPUT_DIR");
  return chosen.empty() ? "monitor_output" : chosen;
}

std::string chosen_name(const JobSelector& selector) {
  if (!selector.job.empty()) return selector.job;
  return selector.output_dir.empty() ? environment_text("GRADMON_JOB") : "";
}

std::vector<JobEntry> jobs_named(const std::string& name, std::vector<JobEntry> jobs) {
  const auto keep = [&jobs](auto&& wanted) {
    std::vector<JobEntry> kept;
    std::copy_if(jobs.begin(), jobs.end(), std::back_inserter(kept), wanted);
    return kept;
  };
  auto named = keep([&name](const JobEntry& job) { return job.name == name; });
  if (!named.empty()) return named;
  return keep([&name](const JobEntry& job) { return job.launch_id == name; });
}

tl::expected<std::string, JobLookupError> only_job(const LiveJobs& live, const std::string& which) {
  std::vector<JobEntry> jobs;
  const auto runs = [&live](const JobEntry& job) { return live.ended.count(job.endpoint) == 0; };
  std::copy_if(live.jobs.begin(), live.jobs.end(), std::back_inserter(jobs), runs);
  if (jobs.empty()) jobs = live.jobs;
  if (jobs.size() == 1) return jobs.front().endpoint;
  if (jobs.empty() && !live.denied.empty()) {
    std::string message;
    for (const std::string& line : live.denied) message += printable(line) + '\n';
    return tl::make_unexpected(JobLookupError{kExitNotAllowed, message});
  }
  if (jobs.empty() && !live.unanswered.empty()) {
    std::string message = "no job " + which + " answered:\n";
    for (const std::string& line : live.unanswered) message += printable(line) + '\n';
    return tl::make_unexpected(JobLookupError{kExitNoAnswer, message});
  }
  if (jobs.empty()) {
    return tl::make_unexpected(JobLookupError{
        kExitNoAnswer, "no live job " + which + " (gradmonctl jobs lists yours; --job, --output-dir or " +
                           "--endpoint chooses one)"});
  }
  TextTable table({"<endpoint", "<name", "<host", "<started", "<launch"});
  for (const JobEntry& job : jobs) {
    const std::string name = job.name.empty() ? "-" : job.name;
    table.add({job.endpoint, name, job.host, utc_text(job.started), job.launch_id});
  }
  return tl::make_unexpected(JobLookupError{kExitUsage, std::to_string(jobs.size()) + " live jobs " + which +
                                                            "; choose one with --job or --endpoint\n" +
                                                            table.text()});
}

namespace {

std::string display_name(const JobEntry& job) {
  return printable(job.name.empty() ? "launch " + job.launch_id : job.name);
}

// A silent hub may serve another job: then no job is known to be the only one.
tl::expected<std::string, JobLookupError> job_here_or_only_job(const std::string& directory,
                                                               const std::string& there, std::string* taken) {
  const HubReplies replies = query_all_hubs(writes_into(directory));
  const LiveJobs here = live_jobs(directory, replies);
  const LiveJobs all = jobs_of_this_host(replies);
  if (!here.jobs.empty() || all.jobs.empty() || !all.unanswered.empty()) return only_job(here, there);
  auto endpoint = only_job(all, "of this user on this host");
  if (endpoint && taken != nullptr) {
    const auto is_it = [&](const JobEntry& job) { return job.endpoint == *endpoint; };
    *taken = "no live job " + there + ": this is your only one, " +
             display_name(*std::find_if(all.jobs.begin(), all.jobs.end(), is_it));
  }
  return endpoint;
}

}  // namespace

std::string only_live_job() {
  const LiveJobs all = jobs_of_this_host(query_all_hubs([](const Status&) { return true; }));
  return all.jobs.size() == 1 && all.unanswered.empty() && all.ended.empty() ? display_name(all.jobs.front())
                                                                             : "";
}

tl::expected<std::string, JobLookupError> find_endpoint(const JobSelector& selector, std::string* taken) {
  if (!selector.endpoint.empty()) return selector.endpoint;
  const std::string given = environment_text("GRADMON_ENDPOINT");
  if (selector.output_dir.empty() && selector.job.empty() && !given.empty()) return given;
  const std::string directory = output_directory(selector);
  const std::string name = chosen_name(selector);
  const std::string there = "with the output directory " + printable(directory);
  const bool chosen = !selector.output_dir.empty() || !environment_text("MONITOR_OUTPUT_DIR").empty();
  if (name.empty() && !chosen) return job_here_or_only_job(directory, there, taken);
  if (name.empty()) return only_job(live_jobs(directory), there);
  const std::string named = "named " + printable(name);
  const auto with_name = [&name](LiveJobs live) {
    live.jobs = jobs_named(name, std::move(live.jobs));
    return live;
  };
  if (!selector.output_dir.empty()) return only_job(with_name(live_jobs(directory)), named + ' ' + there);
  const HubReplies replies = query_all_hubs(
      [&name](const Status& status) { return status.name == name || status.launch_id == name; });
  const LiveJobs here = with_name(jobs_of_this_host(replies));
  return only_job(here.jobs.empty() ? with_name(live_jobs(directory, replies)) : here, named);
}

namespace {

std::string usual_directory(const std::string& endpoint) {
  if (environment_text("GRADMON_INSECURE_LOOPBACK") == "1" && is_loopback(endpoint)) return "";
  const std::string home = environment_text("HOME");
  std::string base = environment_text("XDG_CONFIG_HOME");
  if (base.empty() && !home.empty()) base = home + "/.config";
  if (base.empty()) return "";
  const std::string directory = base + "/gradmon/keys";
  std::error_code error;
  return fs::is_directory(directory, error) ? directory : "";
}

}  // namespace

std::string key_directory(const JobSelector& selector, const std::string& endpoint) {
  const std::string directory = selector.keys.empty() ? environment_text("GRADMON_KEYS") : selector.keys;
  return directory.empty() ? usual_directory(endpoint) : directory;
}

Result<std::optional<ClientKeys>> find_keys(const JobSelector& selector, const std::string& endpoint) {
  if (!is_tcp(endpoint)) return std::optional<ClientKeys>{};
  const std::string directory = key_directory(selector, endpoint);
  if (directory.empty()) return std::optional<ClientKeys>{};
  auto keys = read_operator_keys(directory);
  if (!keys) return tl::unexpected(keys.error());
  return std::optional<ClientKeys>(std::move(*keys));
}

std::string history_denial(const fs::path& output_dir) {
  const fs::path jobs = output_dir / ".gradmon";
  for (const fs::path& place : {output_dir, jobs}) {
    if (std::string denial = access_denial(place, Access::read); !denial.empty()) return denial;
  }
  std::string of_newest;
  std::optional<fs::file_time_type> newest;  // of the files with readable times; they take precedence
  std::error_code error;
  for (fs::directory_iterator job(jobs, error), end; !error && job != end; job.increment(error)) {
    const fs::path history = job->path() / "history.jsonl";
    std::error_code unseen;
    const auto time = fs::last_write_time(history, unseen);
    std::string denial = access_denial(history, Access::read);
    if (unseen && (newest || denial.empty())) continue;
    if (!unseen && newest && time <= *newest) continue;
    of_newest = std::move(denial);
    if (!unseen) newest = time;
  }
  return of_newest;
}

namespace {

// Returns true if the files of the output directory may replace the answer of a job that was not found. If
// the user named a job, the files may be another job's and would mislead.
bool tell_files(const JobSelector& selector, const JobLookupError& problem) {
  if (problem.code != kExitNoAnswer && problem.code != kExitNotAllowed) return false;
  return chosen_name(selector).empty() || !selector.output_dir.empty();
}

}  // namespace

int with_job_or_files(const JobSelector& selector, const Console& console,
                      const std::function<bool()>& has_files,
                      const std::function<int(const AskJob&)>& command) {
  std::string taken;
  const auto ask = connect(selector, console, &taken);
  if (!taken.empty() && has_files()) {
    const std::string why = "no live job with the output directory " + output_directory(selector);
    return command(failing_ask({kExitNoAnswer, why}));
  }
  report_taken(taken, console);
  if (!ask && !tell_files(selector, ask.error())) return report_no_job(ask.error(), console);
  const std::string denial = ask ? "" : history_denial(output_directory(selector));
  if (!denial.empty()) return report_no_job({kExitNotAllowed, printable(denial)}, console);
  return command(ask ? *ask : failing_ask(ask.error()));
}

AskJob bounded_ask(AskJob ask) {
  return [ask = std::move(ask)](const Command& command,
                                std::chrono::milliseconds timeout) -> Result<CommandReply> {
    const std::size_t size = encode(Frame(command)).size();
    if (size <= kMaxFrameBytes) return ask(command, timeout);
    CommandReply refused;
    refused.outcome = CommandOutcome::failed;
    refused.message = "too large: the command takes " + std::to_string(size) + " bytes, a job accepts " +
                      std::to_string(kMaxFrameBytes) + "; nothing was sent";
    return refused;
  };
}

AskJob patient_ask(AskJob ask, CommandClock clock) {
  return [ask = std::move(ask), clock = std::move(clock)](
             const Command& command, std::chrono::milliseconds timeout) -> Result<CommandReply> {
    constexpr std::chrono::milliseconds pause{100};
    const auto deadline = clock.now() + timeout;
    for (;;) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - clock.now());
      auto reply = ask(command, left);
      if (!reply || reply->outcome != CommandOutcome::no_lead) return reply;
      if (clock.now() + pause >= deadline) return tl::unexpected(std::move(reply->message));
      clock.sleep(pause);
    }
  };
}

namespace {

// True for the verbs that every release answers; `off` asks for its verdict, too.
bool works_between_releases(CommandVerb verb) {
  return verb == CommandVerb::status || verb == CommandVerb::off || verb == CommandVerb::verdict;
}

}  // namespace

AskJob name_other_release(AskJob ask, const Console& console) {
  const auto named = std::make_shared<bool>(false);
  return [ask = std::move(ask), console, named](const Command& command, std::chrono::milliseconds timeout) {
    auto reply = ask(command, timeout);
    if (*named || works_between_releases(command.verb)) return reply;
    // The status has the release of a job that does not answer a command.
    const auto known = reply ? reply : ask(make_command(CommandVerb::status), kAnswerTime);
    if (!known || known->outcome == CommandOutcome::no_lead || known->release == own_release()) return reply;
    *named = true;
    console.err << "gradmonctl: this is gradmonctl " << own_release() << ", and the job runs "
                << (known->release.empty() ? "an earlier gradmon, which does not tell its version"
                                           : "gradmon " + printable(known->release))
                << ": status and off work between releases, everything else as far as both know it\n";
    return reply;
  };
}

CommandClock system_clock() {
  return {[] { return std::chrono::steady_clock::now(); },
          [](std::chrono::milliseconds time) { std::this_thread::sleep_for(time); }};
}

tl::expected<AskJob, JobLookupError> connect(const JobSelector& selector, const Console& console,
                                             std::string* taken) {
  const auto endpoint = find_endpoint(selector, taken);
  if (!endpoint) return tl::make_unexpected(endpoint.error());
  auto keys = find_keys(selector, *endpoint);
  if (!keys) return tl::make_unexpected(JobLookupError{kExitUsage, printable(keys.error())});
  try {
    const auto client = std::make_shared<CommandClient>(*endpoint, std::move(*keys));
    AskJob ask = [client](const Command& command, std::chrono::milliseconds timeout) {
      return client->ask(command, timeout);
    };
    return name_other_release(bounded_ask(patient_ask(std::move(ask), system_clock())), console);
  } catch (const std::runtime_error& error) {
    return tl::make_unexpected(JobLookupError{kExitUsage, error.what()});
  }
}

AskJob failing_ask(const JobLookupError& problem) {
  return [message = problem.message](const Command&, std::chrono::milliseconds) {
    return Result<CommandReply>(tl::unexpect, message);
  };
}

// The message is already printable, and may contain line feeds.
int report_no_job(const JobLookupError& problem, const Console& console) {
  console.err << "gradmonctl: " << problem.message << (problem.message.back() == '\n' ? "" : "\n");
  return problem.code;
}

namespace {

// Also names the job that the command would have chosen without a directory.
int report_no_job_at(const JobSelector& selector, const JobLookupError& problem, const Console& console) {
  const int code = report_no_job(problem, console);
  const bool of_directory = !selector.output_dir.empty() && selector.endpoint.empty() && selector.job.empty();
  const std::string other = of_directory && code == kExitNoAnswer ? only_live_job() : "";
  if (!other.empty())
    console.err << "gradmonctl: your only live job is " << other << ", with another output directory: leave "
                << printable(selector.output_dir) << " out to choose that job\n";
  return code;
}

}  // namespace

void report_taken(const std::string& taken, const Console& console) {
  if (!taken.empty()) console.err << "gradmonctl: " << taken << '\n';
}

int with_job(const JobSelector& selector, const Console& console,
             const std::function<int(const AskJob&)>& command) {
  std::string taken;
  const auto ask = connect(selector, console, &taken);
  report_taken(taken, console);
  return ask ? command(*ask) : report_no_job_at(selector, ask.error(), console);
}

namespace {

volatile sig_atomic_t interrupt_came = 0;

bool interrupted() {
  static const bool installed = [] {
    struct sigaction action {};
    action.sa_handler = [](int) { interrupt_came = 1; };  // No SA_RESTART: SIGINT must end a wait.
    return sigaction(SIGINT, &action, nullptr) == 0;
  }();
  return installed && interrupt_came != 0;
}

LiveJob live_job(const std::string& endpoint, const AskJob& ask) {
  LiveJob job;
  job.ask = ask;
  job.now = wall_now;
  job.interrupted = interrupted;
  job.lives = [endpoint] { return hub_is_listening(endpoint); };
  job.pause = [](std::chrono::milliseconds time) { poll(nullptr, 0, static_cast<int>(time.count())); };
  job.next_state = [ask](std::chrono::milliseconds time) -> std::optional<Status> {
    if (poll(nullptr, 0, static_cast<int>(time.count())) < 0) return {};  // SIGINT ends the wait.
    const auto reply = ask(make_command(CommandVerb::status), time);
    return reply ? reply->status : std::nullopt;
  };
  return job;
}

}  // namespace

int with_live_job(JobSelector selector, const Console& console,
                  const std::function<int(const LiveJob&)>& command) {
  std::string taken;
  const auto endpoint = find_endpoint(selector, &taken);
  report_taken(taken, console);
  if (!endpoint) return report_no_job_at(selector, endpoint.error(), console);
  selector.endpoint = *endpoint;
  return with_job(selector, console, [&](const AskJob& ask) { return command(live_job(*endpoint, ask)); });
}

}  // namespace gradmon
