// SPDX-License-Identifier: Apache-2.0
#include "tests/whole/hostile/keyed_job.h"

#include <stdexcept>
#include <string_view>

#include "control/host/child_process.h"
#include "control/hub/transport/command_client.h"
#include "control/hub/transport/curve_keys.h"
#include "control/hub/transport/rendezvous.h"
#include "tests/support/process_figures.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;

fs::path make_keys(const fs::path& directory) {
  if (auto made = make_key_directory(directory); !made) throw std::runtime_error(made.error());
  if (auto made = add_client(directory, {"alice", Role::read}); !made) throw std::runtime_error(made.error());
  return directory;
}

RealJob::Options options(int world, const fs::path& keys, const std::string& before) {
  RealJob::Options options;
  options.world = world;
  options.config = R"({"dynamic_on": false, "wg_distribution": true})";
  options.train = {"--steps", "100000000"};
  // The hub chooses a free port.
  options.before =
      before + " export GRADMON_KEYS=" + keys.string() + " GRADMON_ENDPOINT='tcp://127.0.0.1:*';";
  return options;
}

}  // namespace

KeyedJob::KeyedJob(int world, const std::string& before)
    : keys_(make_keys(scratch_ / "keys")), job_(options(world, keys_, before)) {
  const bool up = eventually(
      [&] {
        const auto jobs = read_entries(job_.output_dir);
        if (jobs.empty() || jobs.front().address.empty()) return false;
        endpoint_ = jobs.front().address;
        socket_ = jobs.front().endpoint.substr(std::string_view("ipc://").size());
        const Status now = status();
        for (const RankStatus& rank : now.ranks) {
          if (rank.state == "absent" || rank.step < 10) return false;
        }
        if (now.ranks.empty()) return false;
        rank0_ = static_cast<pid_t>(now.ranks.front().pid);
        return true;
      },
      std::chrono::seconds(60));
  if (!up) throw std::runtime_error("the job does not start: " + job_.log() + hub_log());
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

Status KeyedJob::local_status() const {
  Command command;
  command.request_id = random_hex(8);
  auto reply = CommandClient("ipc://" + socket_.string()).ask(command, std::chrono::seconds(20));
  return reply ? reply->status.value_or(Status{}) : Status{};
}

std::string KeyedJob::hub_log() const { return read_text(socket_.parent_path() / "hub.log"); }

pid_t KeyedJob::hub() const { return listener_of(socket_); }

std::int64_t KeyedJob::step() const {
  const Status now = status();
  return now.ranks.empty() ? -1 : now.ranks.front().step;
}

std::uint16_t KeyedJob::port() const {
  return static_cast<std::uint16_t>(std::stoi(endpoint_.substr(endpoint_.rfind(':') + 1)));
}

}  // namespace gradmon
