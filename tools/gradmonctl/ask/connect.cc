// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/ask/connect.h"

#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>

#include "control/client/command_client.h"
#include "tools/gradmonctl/ask/bounded_ask.h"
#include "tools/gradmonctl/ask/find_keys.h"
#include "tools/gradmonctl/ask/patient_ask.h"
#include "tools/gradmonctl/cli/printable.h"

namespace gradmon {

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

void report_taken(const std::string& taken, const Console& console) {
  if (!taken.empty()) console.err << "gradmonctl: " << taken << '\n';
}

int with_job(const JobSelector& selector, const Console& console,
             const std::function<int(const AskJob&)>& command) {
  std::string taken;
  const auto ask = connect(selector, console, &taken);
  report_taken(taken, console);
  return ask ? command(*ask) : report_no_job(ask.error(), console);
}

}  // namespace gradmon
