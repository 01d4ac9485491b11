// SPDX-License-Identifier: Apache-2.0
#include "tests/control/net/lone_rank.h"

#include <stdexcept>

#include "control/net/command_client.h"
#include "control/net/discovery.h"
#include "control/net/process_identity.h"

namespace gradmon {

using std::chrono::milliseconds;

LoneRank::LoneRank(const AgentOptions& from, std::int64_t matches) : options_(from) {
  options_.launcher_id = random_hex(4);
  options_.output_dir = directory_.path();
  options_.config_path = directory_ / "monitor_config.json";
  write_text(options_.config_path, R"({"dynamic_on": false})");
  AgentCalls calls{[matches](const Plan&) -> tl::expected<std::int64_t, std::string> { return matches; },
                   [] { return CollectingReport{}; }, [] { return std::filesystem::path{}; }};
  agent_.emplace(options_, gate_, std::move(calls));
  agent_->start();
}

void LoneRank::begin(Step step) {
  if (!gate_.try_begin(step)) gate_.begin_or_wait(step, [] { return false; });
}

std::string LoneRank::endpoint() const {
  std::vector<JobEntry> jobs;
  eventually([&] {
    jobs = live_jobs(read_jobs(directory_.path()).value_or(std::vector<JobEntry>{}));
    return !jobs.empty();
  });
  if (jobs.empty()) throw std::runtime_error("there is no rank 0");
  return jobs.front().endpoint;
}

CommandReply LoneRank::ask(const Command& command) const {
  auto reply = CommandClient(endpoint()).ask(command, milliseconds(20'000));
  if (!reply) throw std::runtime_error(reply.error());
  return *reply;
}

Status LoneRank::ask() const {
  Command status;
  status.request_id = random_hex(8);
  return ask(status).status.value_or(Status{});
}

std::string LoneRank::warning(const std::string& begins) const {
  std::string found;
  eventually([&] {
    for (const std::string& line : status().warnings) {
      if (line.rfind(begins, 0) == 0) found = line;
    }
    return !found.empty();
  });
  return found;
}

}  // namespace gradmon
