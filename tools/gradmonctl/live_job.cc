// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/live_job.h"

#include <signal.h>

#include <algorithm>
#include <memory>
#include <thread>

#include "control/net/bus.h"
#include "control/net/discovery.h"
#include "control/net/process_identity.h"
#include "control/net/state_feed.h"
#include "tools/gradmonctl/find_job.h"
#include "tools/gradmonctl/find_keys.h"

namespace gradmon {
namespace {

volatile sig_atomic_t interrupt_came = 0;

bool interrupted() {
  static const bool installed = [] {
    struct sigaction action {};
    action.sa_handler = [](int) { interrupt_came = 1; };  // No SA_RESTART: a wait is to end.
    return sigaction(SIGINT, &action, nullptr) == 0;
  }();
  return installed && interrupt_came != 0;
}

std::optional<JobEntry> entry_of(const JobPlace& place, const std::string& endpoint) {
  auto jobs = read_jobs(output_directory(place));
  if (!jobs) return {};
  const auto found =
      std::find_if(jobs->begin(), jobs->end(), [&](const JobEntry& job) { return job.endpoint == endpoint; });
  return found == jobs->end() ? std::nullopt : std::optional<JobEntry>(*found);
}

bool still_there(const JobPlace& place, const std::string& epoch) {
  auto jobs = read_jobs(output_directory(place));
  if (!jobs) return true;  // Unreadable just now.
  jobs = live_jobs(std::move(*jobs));
  return std::any_of(jobs->begin(), jobs->end(), [&](const JobEntry& job) { return job.epoch == epoch; });
}

}  // namespace

LiveJob live_job(const JobPlace& place, const std::string& endpoint, AskJob ask) {
  const std::optional<JobEntry> entry = entry_of(place, endpoint);
  std::string state_endpoint = entry ? entry->state_endpoint : "";
  if (state_endpoint.empty() && !is_tcp(endpoint)) state_endpoint = endpoint + ".state";
  LiveJob job;
  job.ask = ask;
  job.now = wall_now;
  job.interrupted = interrupted;
  job.lives = [place, entry]() -> std::optional<bool> {
    return entry ? std::optional<bool>(still_there(place, entry->epoch)) : std::nullopt;
  };
  if (state_endpoint.empty()) {
    job.next_state = [ask](std::chrono::milliseconds time) -> std::optional<Status> {
      std::this_thread::sleep_for(time);
      const auto reply = ask(question(CommandVerb::status), time);
      return reply ? reply->status : std::nullopt;
    };
    return job;
  }
  auto keys = find_keys(place, state_endpoint);
  auto feed = std::make_shared<StateFeed>(state_endpoint, keys ? std::move(*keys) : std::nullopt);
  job.next_state = [feed](std::chrono::milliseconds time) { return feed->next(time); };
  return job;
}

}  // namespace gradmon
