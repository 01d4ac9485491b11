// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/cli/connect.h"

#include <poll.h>
#include <signal.h>

#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>

#include "control/host/child_process.h"
#include "control/hub/transport/command_client.h"
#include "control/hub/transport/live_jobs.h"
#include "control/wire/messages.h"
#include "tools/gradmonctl/cli/find_job.h"
#include "tools/gradmonctl/cli/printable.h"

namespace gradmon {

AskJob bounded_ask(AskJob ask) {
  return
      [ask = std::move(ask)](const Command& command,
                             std::chrono::milliseconds timeout) -> tl::expected<CommandReply, std::string> {
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
             const Command& command,
             std::chrono::milliseconds timeout) -> tl::expected<CommandReply, std::string> {
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
    return tl::expected<CommandReply, std::string>(tl::unexpect, message);
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
