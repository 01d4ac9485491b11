// SPDX-License-Identifier: Apache-2.0
#include "tests/whole/badinput/one_agent_job.h"

#include <signal.h>

#include <chrono>
#include <stdexcept>
#include <string_view>

#include "control/client/command_client.h"
#include "control/host/boot_clock.h"
#include "control/host/job_directory.h"
#include "control/host/process_identity.h"
#include "tests/support/process_figures.h"

namespace gradmon {
namespace {

EnvironmentLookup with_runtime_directory(const std::string& directory) {
  return [directory](const char* name) {
    if (std::string_view(name) == "XDG_RUNTIME_DIR") return std::optional<std::string>(directory);
    return process_environment(name);
  };
}

}  // namespace

OneAgentJob::OneAgentJob(const Options& options) {
  options_.world_size = options.world_size;
  options_.launch_id = random_hex(4);
  options_.output_dir = directory_ / "out";
  options_.lead.config_path = (directory_ / "monitor_config.json").string();
  options_.endpoint = options.endpoint;
  options_.insecure_loopback = true;
  options_.environment = with_runtime_directory(directory_.path().string());
  write_text(options_.lead.config_path, R"({"dynamic_on": false})");
  const std::int64_t matches = options.matches;
  AgentCalls calls{[matches](const Plan&) -> tl::expected<std::int64_t, std::string> { return matches; },
                   [] { return CollectingReport{}; }};
  agent_.emplace(options_, gate_, std::move(calls));
  agent_->start();
  if (!eventually([&] { return agent_->job().has_value(); })) throw std::runtime_error("no hub has answered");
}

OneAgentJob::~OneAgentJob() {
  const pid_t hub = listener_of(socket());
  agent_.reset();
  if (hub > 0) kill(hub, SIGKILL);
}

void OneAgentJob::begin(Step step) {
  if (!gate_.try_begin(step)) gate_.begin_or_wait(step, boot_now, [] { return false; });
}

std::filesystem::path OneAgentJob::socket() const {
  const std::filesystem::path base = job_bases(options_.environment).preferred();
  return JobDirectory{base / job_file_name(options_.launch_id)}.socket();
}

CommandReply OneAgentJob::ask(const Command& command) const {
  CommandClient client("ipc://" + socket().string());
  auto reply = client.ask(command, std::chrono::seconds(20));
  if (!reply) throw std::runtime_error(reply.error());
  return *reply;
}

Status OneAgentJob::ask() const {
  Command status;
  status.request_id = random_hex(8);
  return ask(status).status.value_or(Status{});
}

std::string OneAgentJob::warning(const std::string& begins) const {
  std::string found;
  eventually([&] {
    for (const std::string& line : ask().warnings) {
      if (line.rfind(begins, 0) == 0) found = line;
    }
    return !found.empty();
  });
  return found;
}

}  // namespace gradmon
