// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/ask/live_job.h"

#include <poll.h>
#include <signal.h>

#include "control/client/live_jobs.h"
#include "control/host/process_identity.h"
#include "tools/gradmonctl/ask/connect.h"
#include "tools/gradmonctl/ask/find_job.h"

namespace gradmon {
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
  if (!endpoint) return report_no_job(endpoint.error(), console);
  selector.endpoint = *endpoint;
  return with_job(selector, console, [&](const AskJob& ask) { return command(live_job(*endpoint, ask)); });
}

}  // namespace gradmon
