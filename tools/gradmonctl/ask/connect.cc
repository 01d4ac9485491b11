// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/ask/connect.h"

#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>

#include "control/client/command_client.h"
#include "tools/gradmonctl/ask/bounded_ask.h"
#include "tools/gradmonctl/ask/find_keys.h"
#include "tools/gradmonctl/show/printable.h"

namespace gradmon {

Pace real_pace() {
  return {[] { return std::chrono::steady_clock::now(); },
          [](std::chrono::milliseconds time) { std::this_thread::sleep_for(time); }};
}

tl::expected<AskJob, NoJob> connect(const JobPlace& place) {
  const auto endpoint = find_endpoint(place);
  if (!endpoint) return tl::make_unexpected(endpoint.error());
  auto keys = find_keys(place, *endpoint);
  if (!keys) return tl::make_unexpected(NoJob{kExitUsage, printable(keys.error())});
  try {
    const auto client = std::make_shared<CommandClient>(*endpoint, std::move(*keys));
    return bounded_ask([client](const Command& command, std::chrono::milliseconds timeout) {
      return client->ask(command, timeout);
    });
  } catch (const std::runtime_error& error) {
    return tl::make_unexpected(NoJob{kExitUsage, error.what()});
  }
}

AskJob connect_here(const std::string& endpoint) {
  const auto client = std::make_shared<CommandClient>(endpoint);
  return [client](const Command& command, std::chrono::milliseconds timeout) {
    return client->ask(command, timeout);
  };
}

AskJob ask_nobody(const NoJob& problem) {
  return [message = problem.message](const Command&, std::chrono::milliseconds) {
    return tl::expected<CommandReply, std::string>(tl::unexpect, message);
  };
}

// The message is already printable, and may contain line feeds.
int give_up(const NoJob& problem, const Console& console) {
  console.err << "gradmonctl: " << problem.message << (problem.message.back() == '\n' ? "" : "\n");
  return problem.code;
}

int with_job(const JobPlace& place, const Console& console,
             const std::function<int(const AskJob&)>& command) {
  const auto ask = connect(place);
  return ask ? command(*ask) : give_up(ask.error(), console);
}

}  // namespace gradmon
