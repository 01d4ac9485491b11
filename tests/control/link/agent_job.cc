// SPDX-License-Identifier: Apache-2.0
#include "tests/control/link/agent_job.h"

#include <signal.h>
#include <sys/socket.h>

#include <stdexcept>

#include "control/files/descriptor.h"
#include "control/host/child_process.h"
#include "control/host/unix_stream.h"
#include "control/hub/transport/command_client.h"

namespace gradmon {
namespace {

using std::chrono::milliseconds;

AgentCalls calls() {
  return {[](const Plan&) -> tl::expected<std::int64_t, std::string> { return 1; },
          [] { return CollectingReport{}; }};
}

}  // namespace

AgentRank::AgentRank(const AgentOptions& options, std::chrono::microseconds pause)
    : AgentRank(options, MeasuredPace{{}, pause, {}}) {}

AgentRank::AgentRank(const AgentOptions& options, MeasuredPace pace)
    : start_(options.start_iteration),
      pace_(std::move(pace)),
      gate_(start_),
      agent_(options, gate_, calls()) {
  trainer_ = std::thread([this] { train(); });
}

void AgentRank::stop() {
  stopping_ = true;
  if (trainer_.joinable()) trainer_.join();
}

void AgentRank::train() {
  Step n = start_;
  Revision revision;
  auto last = std::chrono::steady_clock::now();
  for (bool first = true; !stopping_; n = n + 1, first = false) {
    bool collects = false;
    if (!gate_.try_begin(n)) {
      collects = pass_gate(n, revision).collect;
      if (stopping_) break;
    }
    step_ = n.value;
    const auto now = std::chrono::steady_clock::now();
    const auto paused = std::chrono::duration_cast<milliseconds>(now - std::exchange(last, now)).count();
    if (paused > longest_pause_) longest_pause_ = paused;
    if (first) agent_.start();
    // The length of a step, not a wait for anything.
    if (pace_.on_plan) std::this_thread::sleep_until(pace_.zero + (n.value + 1 - start_.value) * pace_.pause);
    if (!pace_.on_plan) std::this_thread::sleep_for(pace_.pause);
    if (collects && gate_.step_still_valid(boot_now())) collected[n.value] = revision.value;
  }
  agent_.stop(Step{n.value - 1});
}

Opening AgentRank::pass_gate(Step n, Revision& revision) {
  Opening opening = gate_.begin(n, boot_now());
  if (opening.wait) {
    opening = gate_.begin_or_wait(n, boot_now, [this] { return stopping_.load(); });
    released_ = MeasuredPace::Time::clock::now();
  }
  if (stopping_) return opening;
  if (opening.swap) {
    revision = opening.swap->revision;
    const auto heard = std::exchange(released_, {}).value_or(MeasuredPace::Time::clock::now());
    if (pace_.on_plan) pace_.on_plan(revision, n, heard);
    agent_.plan_swapped();
  }
  if (opening.ended) agent_.rows_on_disk(revision);
  return opening;
}

pid_t listening_process(const std::filesystem::path& socket) {
  const auto fd = connect_unix(socket);
  if (!fd) return 0;
  const Descriptor connection(*fd);
  ucred who{};
  socklen_t size = sizeof who;
  return ::getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 ? who.pid : 0;
}

void wait_for_end_of_hub(const std::filesystem::path& socket) {
  pid_t hub = 0;
  const bool ended = eventually(
      [&] {
        hub = listening_process(socket);
        return hub == 0;
      },
      std::chrono::seconds(10));
  if (!ended && hub > 1) ::kill(hub, SIGKILL);
}

AgentOptions options_in(const std::filesystem::path& scratch, AgentOptions options) {
  const std::string runtime = scratch.string();
  options.environment = [runtime](const char* name) -> std::optional<std::string> {
    if (std::string(name) == "XDG_RUNTIME_DIR") return runtime;
    if (std::string(name) == "GRADMON_HUB") return GRADMON_HUB_PROGRAM;
    return std::nullopt;
  };
  if (options.launch_id.empty() && !options.ask_for_launch_id) options.launch_id = random_hex(4);
  options.output_dir = scratch / "out";
  options.lead.config_path = (scratch / "config.json").string();
  options.lead.dynamic = options.mode == Mode::dynamic;
  return options;
}

AgentJob::AgentJob(int world, const std::string& config, AgentOptions options, const MeasuredPace* pace)
    : options_(options_in(scratch_.path(), std::move(options))) {
  write_text(config_path(), config);
  options_.world_size = world;
  auto made = make_job_directory(options_.launch_id, job_bases(options_.environment));
  if (!made) throw std::runtime_error(made.error());
  directory_ = *made;
  for (int rank = 0; rank < world; ++rank) {
    const MeasuredPace own{{}, std::chrono::microseconds(500 + 700 * rank), {}};
    ranks_.push_back(std::make_unique<AgentRank>(this->options(rank), pace != nullptr ? *pace : own));
  }
}

AgentJob::~AgentJob() {
  stop();
  wait_for_end_of_hub(directory_.socket());
}

AgentOptions AgentJob::options(int rank) const {
  AgentOptions options = options_;
  options.rank = Rank{rank};
  return options;
}

void AgentJob::stop() {
  for (auto& rank : ranks_) rank->stop();
}

CommandReply AgentJob::ask(const Command& command) {
  auto reply = CommandClient("ipc://" + directory_.socket().string()).ask(command, milliseconds(20'000));
  if (!reply) throw std::runtime_error(reply.error());
  return *reply;
}

CommandReply AgentJob::ask(CommandVerb verb, std::string request_id) {
  Command command;
  command.verb = verb;
  command.request_id = request_id.empty() ? random_hex(8) : std::move(request_id);
  command.by = "tester";
  return ask(command);
}

CommandReply AgentJob::wait_until_settled(const std::string& request_id) {
  CommandReply reply;
  const bool done = eventually([&] {
    reply = ask(CommandVerb::verdict, request_id);
    return reply.settled && (reply.applied_by_all || reply.outcome != CommandOutcome::done);
  });
  if (!done) throw std::runtime_error("no verdict: " + reply.message);
  return reply;
}

std::string AgentJob::divergence() {
  stop();
  std::map<std::int64_t, std::uint64_t> agreed;
  for (auto& rank : ranks_) {
    for (const auto& [step, revision] : rank->collected) {
      if (agreed.emplace(step, revision).first->second != revision) return "step " + std::to_string(step);
    }
  }
  return "";
}

}  // namespace gradmon
