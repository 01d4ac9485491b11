// SPDX-License-Identifier: Apache-2.0
#include "tests/hostile/keyed_job.h"

#include <stdexcept>

#include "control/net/bus.h"
#include "control/net/command_client.h"
#include "control/net/discovery.h"
#include "control/net/keygen.h"
#include "control/net/process_identity.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;

fs::path make_keys(const fs::path& directory) {
  if (auto made = make_key_directory(directory); !made) throw std::runtime_error(made.error());
  if (auto made = add_client(directory, {"alice", Role::read}); !made) throw std::runtime_error(made.error());
  return directory;
}

std::string free_endpoint() {
  const std::string any = "tcp://127.0.0.1:*";
  return (*Bus::listen(any, any, InsecureLoopback::allowed, {1000}))->endpoint();
}

RealJob::Options options(int world, const fs::path& keys, const std::string& endpoint,
                         const std::string& before) {
  RealJob::Options options;
  options.world = world;
  options.config = R"({"dynamic_on": false, "wg_distribution": true})";
  options.train = {"--steps", "100000000"};
  options.before = before + " export GRADMON_KEYS=" + keys.string() + " GRADMON_ENDPOINT=" + endpoint + ";";
  return options;
}

}  // namespace

KeyedJob::KeyedJob(int world, const std::string& before)
    : keys_(make_keys(scratch_ / "keys")),
      endpoint_(free_endpoint()),
      job_(options(world, keys_, endpoint_, before)) {
  const bool up = eventually(
      [&] {
        const auto jobs = live_jobs(read_jobs(job_.output_dir).value_or(std::vector<JobEntry>{}));
        if (jobs.empty()) return false;
        state_endpoint_ = jobs.front().state_endpoint;
        rank0_ = static_cast<pid_t>(jobs.front().pid);
        const Status now = status();
        for (const RankStatus& rank : now.ranks) {
          if (rank.state == "absent" || rank.step < 10) return false;
        }
        return !now.ranks.empty();
      },
      std::chrono::seconds(60));
  if (!up) throw std::runtime_error("the job does not start: " + job_.log());
}

CommandReply KeyedJob::ask(Command command, const fs::path& with) const {
  if (command.request_id.empty()) command.request_id = random_hex(8);
  auto keys = read_operator_keys(with);
  if (!keys) throw std::runtime_error(keys.error());
  auto reply = CommandClient(endpoint_, std::move(*keys)).ask(command, std::chrono::seconds(20));
  if (reply) return *reply;
  CommandReply none;
  none.outcome = CommandOutcome::failed;
  none.message = reply.error();
  return none;
}

CommandReply KeyedJob::ask(CommandVerb verb) const {
  Command command;
  command.verb = verb;
  command.by = "tester";
  return ask(command, keys_);
}

Status KeyedJob::status() const { return ask(CommandVerb::status).status.value_or(Status{}); }

fs::path KeyedJob::keys_of(const std::string& name) const {
  const fs::path own = scratch_ / name;
  if (!fs::create_directory(own)) return own;
  fs::permissions(own, fs::perms::owner_all);
  fs::copy_file(keys_ / "server.public", own / "server.public");
  fs::copy_file(keys_ / (name + ".secret"), own / (name + ".secret"));
  return own;
}

double KeyedJob::resident_mib() const {
  const std::string text = read_text("/proc/" + std::to_string(rank0_) + "/status");
  const std::size_t at = text.find("VmRSS:");
  return at == text.npos ? 0 : std::stod(text.substr(at + 6)) / 1024;
}

std::size_t KeyedJob::descriptors() const {
  const fs::directory_iterator all("/proc/" + std::to_string(rank0_) + "/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

std::size_t KeyedJob::descriptor_limit() const {
  const std::string line = "Max open files";
  const std::string text = read_text("/proc/" + std::to_string(rank0_) + "/limits");
  const std::size_t at = text.find(line);
  return at == text.npos ? 0 : std::stoul(text.substr(at + line.size()));
}

std::int64_t KeyedJob::step() const {
  const Status now = status();
  return now.ranks.empty() ? -1 : now.ranks.front().step;
}

std::uint16_t KeyedJob::port_of(const std::string& endpoint) {
  return static_cast<std::uint16_t>(std::stoi(endpoint.substr(endpoint.rfind(':') + 1)));
}

}  // namespace gradmon
