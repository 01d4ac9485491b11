// SPDX-License-Identifier: Apache-2.0
// The rights of a key, and the places where no secret key may appear.
#include <vector>

#include "control/hub/transport/bus.h"
#include "control/hub/transport/curve_keys.h"
#include "control/wire/messages.h"
#include "tests/support/catch.h"
#include "tests/whole/hostile/keyed_job.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;

std::string hex_of(const std::string& bytes) {
  constexpr char digits[] = "0123456789abcdef";
  std::string hex;
  for (const char c : bytes) {
    hex += digits[static_cast<unsigned char>(c) >> 4U];
    hex += digits[static_cast<unsigned char>(c) & 15U];
  }
  return hex;
}

// Every secret key in the directory, as Z85, as bytes and as hex.
std::vector<std::string> secrets_in(const fs::path& keys) {
  std::vector<std::string> forms;
  for (const auto& file : fs::directory_iterator(keys)) {
    if (file.path().extension() != ".secret") continue;
    const std::string text = read_text(file.path()).substr(0, kKeyText);
    KeyBytes key{};
    REQUIRE_FALSE(from_z85(text, key));
    const std::string raw(key.begin(), key.end());
    forms.insert(forms.end(), {text, raw, hex_of(raw)});
  }
  return forms;
}

Command command_of(CommandVerb verb) {
  Command command;
  command.verb = verb;
  command.by = "tester";
  return command;
}

TEST_CASE("no secret key is in arguments or environment or logs or answers or files") {
  KeyedJob job(2);
  const std::vector<std::string> secrets = secrets_in(job.keys());
  REQUIRE(secrets.size() == 12);
  std::string seen;
  Command on = command_of(CommandVerb::on);
  on.collect_times = 2;
  REQUIRE(job.ask(on, job.keys()).outcome == CommandOutcome::done);
  REQUIRE(eventually([&] { return job.status().reason == "finished"; }, std::chrono::seconds(60)));
  std::vector<std::int64_t> processes{job.hub()};
  for (const RankStatus& rank : job.status().ranks) processes.push_back(rank.pid);
  for (const std::int64_t process : processes) {
    for (const char* file : {"cmdline", "environ", "comm"})
      seen += read_text("/proc/" + std::to_string(process) + "/" + file);
  }
  CHECK(seen.find("GRADMON_KEYS=" + job.keys().string()) != seen.npos);
  const fs::path answers = job.job().directory() / "answers";
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"status", "--json"}, {"status"}, {"history", "--json"}, {"off"}}) {
    std::vector<std::string> command = {program("gradmonctl")};
    command.insert(command.end(), words.begin(), words.end());
    command.insert(command.end(), {"--endpoint", job.endpoint(), "--keys", job.keys().string()});
    CHECK(run_program(command, answers) == 0);
  }
  CHECK(read_text(answers).find("\"ranks\"") != std::string::npos);
  seen += job.hub_log();
  job.job().end();
  for (const auto& file : fs::recursive_directory_iterator(job.job().directory())) {
    if (file.is_regular_file()) seen += read_text(file.path());
  }
  CHECK(seen.find("gradmon: ON") != seen.npos);
  for (const std::string& secret : secrets) CHECK(seen.find(secret) == seen.npos);
}

TEST_CASE("a key with the role read may ask but neither command nor act as a rank") {
  KeyedJob job(2);
  const fs::path alice = job.keys_of("alice");
  CHECK(job.ask(command_of(CommandVerb::status), alice).status->ranks.size() == 2);
  CHECK(job.ask(command_of(CommandVerb::history), alice).outcome == CommandOutcome::done);
  for (const CommandVerb verb : {CommandVerb::on, CommandVerb::off, CommandVerb::set, CommandVerb::dry_run,
                                 CommandVerb::cancel, CommandVerb::evict}) {
    const CommandReply refused = job.ask(command_of(verb), alice);
    CHECK(refused.outcome == CommandOutcome::not_allowed);
    CHECK(refused.message == "client \"alice\" may read, not command (its role in clients.allow is read)");
  }
  auto bus = *Bus::make_client({kMaxFrameBytes}, *read_operator_keys(alice));
  REQUIRE(bus->connect(job.endpoint()));
  const Envelope left{job.status().epoch, Rank{1}, 1, Left{Step{1}}};
  bus->send("", encode(Frame(Bundles{to_bundle(left)})));
  const auto has_dropped = [&] {
    for (const std::string& warning : job.status().warnings) {
      if (warning.find("client \"alice\" may read, not be a rank") != warning.npos) return true;
    }
    return false;
  };
  CHECK(eventually(has_dropped));
  CHECK(job.status().ranks[1].state == "idle");
  for (const HistoryEntry& tried : job.ask(CommandVerb::history).history) {
    CHECK(tried.verdict == "refused");
    CHECK(tried.by.find("alice") == 0);
  }
}

TEST_CASE("a client whose key is not listed is refused and training goes on") {
  KeyedJob job(1);
  const TemporaryDirectory scratch;
  const std::filesystem::path foreign = scratch / "keys";
  REQUIRE(make_key_directory(foreign));
  std::filesystem::copy_file(job.keys() / "server.public", foreign / "server.public",
                             std::filesystem::copy_options::overwrite_existing);
  const CommandReply reply = job.ask(command_of(CommandVerb::status), foreign);
  CHECK(reply.outcome == CommandOutcome::not_allowed);
  CHECK(reply.message == job.endpoint() + ": the job's clients.allow does not list this key");
  const std::int64_t before = job.step();
  CHECK(eventually([&] { return job.step() > before; }));
}

}  // namespace
}  // namespace gradmon
