// SPDX-License-Identifier: Apache-2.0
// Messages to the lead hub from ranks that are wrong or old, and the answer to a plan
// without targets. (Sizes, endpoints and keys: tests/control/hub.)
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <zmq.hpp>

#include "control/debian_version.h"
#include "control/files/descriptor.h"
#include "control/host/process_identity.h"
#include "control/hub/rendezvous/job_entry.h"
#include "tests/support/process_figures.h"
#include "tests/whole/badinput/scripted_rank.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

constexpr Rank kOne{1};

OneAgentJob::Options of_two(std::int64_t matches = 1) { return {2, matches, ""}; }

Command command_of(CommandVerb verb) {
  Command command;
  command.verb = verb;
  command.request_id = random_hex(8);
  command.by = "tester";
  return command;
}

Offered answer_to(const Offer& offer, std::int64_t matches = 1) {
  return {offer.revision, offer.plan->config_sha256, matches, ""};
}

Ready ready_for(const Prepare& prepare, std::int64_t fence) {
  return {prepare.revision, prepare.config_sha256, Step{fence}};
}

// Waits for the verdict on a revision: its history entry.
HistoryEntry wait_for_verdict(const OneAgentJob& job, Revision revision) {
  HistoryEntry found;
  REQUIRE(eventually([&] {
    for (const HistoryEntry& entry : job.ask(command_of(CommandVerb::history)).history) {
      if (entry.revision == revision) found = entry;
    }
    return !found.verdict.empty();
  }));
  return found;
}

OneAgentJob::Options on_loopback() { return {1, 1, "tcp://127.0.0.1:*"}; }

std::string address_of(const OneAgentJob& job) {
  std::string address;
  REQUIRE(eventually([&] {
    const auto entry = find_entry(job.output_dir(), job.launch_id());
    address = entry ? entry->address : "";
    return !address.empty();
  }));
  return address;
}

int connected_to_port_of(const std::string& address) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  REQUIRE(connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
  return fd;
}

bool send_all(int fd, const std::string& bytes) {
  std::size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t done = send(fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (done <= 0) return false;
    sent += static_cast<std::size_t>(done);
  }
  return true;
}

// ZMTP 3.0, mechanism NULL: greeting and READY.
std::string handshake_without_keys() {
  std::string greeting(64, '\0');
  greeting[0] = '\xff';
  greeting[9] = '\x7f';
  greeting[10] = 3;
  greeting.replace(12, 4, "NULL");
  const std::string type(
      "\x0bSocket-Type\0\0\0\x06"
      "DEALER",
      22);
  const std::string ready = "\x05READY" + type;
  return greeting + '\x04' + static_cast<char>(ready.size()) + ready;
}

std::string own_name() { return "pid " + std::to_string(getpid()) + " on " + host_name(); }

}  // namespace

TEST_CASE("a rank with another protocol version is refused and both versions are named") {
  const OneAgentJob job(of_two());
  ScriptedRank one(job, kOne);
  const std::string why =
      "rank 1 speaks protocol version 99, this job speaks " + std::to_string(kProtocolVersion);
  CHECK(one.send_hello(99).refused == why);
  job.ask(command_of(CommandVerb::on));
  const auto pending = job.ask().pending;
  REQUIRE(pending);
  CHECK(pending->reason == why);
  ScriptedRank repaired(job, kOne);
  repaired.join();
  CHECK(repaired.receive<Offer>().plan->on);
}

TEST_CASE("a rank number that a running process holds is refused and its holder is named") {
  const OneAgentJob job(of_two());
  ScriptedRank one(job, kOne);
  one.join();
  ScriptedRank other(job, kOne);
  CHECK(other.send_hello().refused == "rank 1 already belongs to " + own_name());
  ScriptedRank zero(job, Rank{0});
  CHECK(zero.send_hello().refused == "rank 0 already belongs to " + own_name());
  other.send_as(Rank{0}, Left{Step{5}});
  CHECK(other.wait_for_close());
  const auto ranks = job.ask().ranks;
  CHECK(ranks.at(0).state == "idle");
  CHECK(ranks.at(1).state == "idle");
}

TEST_CASE("a process of another launch is disconnected") {
  const OneAgentJob job(of_two());
  const OneAgentJob another(of_two());
  ScriptedRank one(job, kOne);
  Introduction introduction;
  introduction.launch_id = another.launch_id();
  introduction.rank = kOne;
  introduction.world_size = 2;
  one.send_raw(encode(Frame(introduction)));
  CHECK(one.wait_for_close());
  CHECK(job.ask().ranks.at(1).state == "absent");
}

// An honest rank repeats a message if the answer was lost. So a repeated message is no
// error and is not counted, but it must have no effect.
TEST_CASE("messages about an old revision and repeated messages change nothing") {
  const OneAgentJob job(of_two());
  ScriptedRank one(job, kOne);
  one.join();
  job.ask(command_of(CommandVerb::on));
  const auto first = one.receive<Offer>();
  one.send(Reject{first.revision, "not I"});
  REQUIRE(wait_for_verdict(job, first.revision).verdict == "abort");

  const Command on = command_of(CommandVerb::on);
  job.ask(on);
  auto second = one.receive<Offer>();
  while (second.revision == first.revision) second = one.receive<Offer>();
  one.send(Reject{first.revision, "not I"});
  one.send(Ready{first.revision, first.plan->config_sha256, Step{7}});
  one.send(answer_to(second));
  const auto prepare = one.receive<Prepare>();
  REQUIRE(prepare.revision == second.revision);
  one.send(ready_for(prepare, 50));
  one.send(ready_for(prepare, 9));
  const HistoryEntry entry = wait_for_verdict(job, second.revision);
  CHECK(entry.verdict == "commit");
  CHECK(entry.effective_step == 50);
  one.send(Reject{second.revision, "too late"});
  one.send(ready_for(prepare, 60));
  one.wait_until_read();
  const std::size_t changes = job.ask(command_of(CommandVerb::history)).history.size();
  CHECK(job.ask(on).message == job.ask(on).message);  // A repeated command is no new command.
  const auto history = job.ask(command_of(CommandVerb::history)).history;
  CHECK(history.size() == changes);
  CHECK(history.back().verdict == "commit");
  CHECK(history.back().effective_step == 50);
}

TEST_CASE("a message of another epoch changes nothing and its sender is named") {
  const OneAgentJob job(of_two());
  ScriptedRank one(job, kOne);
  one.join();
  const std::string epoch = std::exchange(one.epoch, "0123456789abcdef0123456789abcdef");
  one.send(Left{Step{5}});
  CHECK(job.warning("rank 1 of an earlier launch") ==
        "rank 1 of an earlier launch (epoch 01234567) still runs");
  CHECK(job.ask().ranks.at(1).state == "idle");
  one.epoch = epoch;
  one.incarnation += 1;  // That of a process which has not joined yet.
  one.send(Left{Step{5}});
  one.wait_until_read();
  CHECK(job.ask().ranks.at(1).state == "idle");
}

TEST_CASE("bytes that are no message close the connection and have no other effect") {
  for (const std::string& bytes : {std::string("x"), std::string(60'000, '\xff'), encode(Frame(Status{}))}) {
    const OneAgentJob job(of_two());
    ScriptedRank one(job, kOne);
    one.join();
    one.send_raw(bytes);
    CHECK(one.wait_for_close());
    ScriptedRank again(job, kOne);  // The process may still run: only its connection is gone.
    CHECK(again.send_hello().refused == "rank 1 already belongs to " + own_name());
    CHECK(job.ask().ranks.at(0).state == "idle");
  }
}

TEST_CASE("a message of a thousand frames is dropped and counted") {
  const OneAgentJob job(on_loopback());
  zmq::context_t context;
  zmq::socket_t socket(context, zmq::socket_type::dealer);
  socket.set(zmq::sockopt::linger, 1000);
  socket.connect(address_of(job));
  for (int message = 0; message < 3; ++message) {
    for (int frame = 1; frame <= 1000; ++frame)
      socket.send(zmq::str_buffer("gradmon"),
                  frame < 1000 ? zmq::send_flags::sndmore : zmq::send_flags::none);
  }
  const std::string dropped = "3 messages from the network dropped";
  CHECK(job.warning(dropped) == dropped + "; the last: a message of several frames");
  CHECK(job.ask().mode == "dynamic");
}

TEST_CASE("a message without end closes the connection and does not fill the hub's memory") {
  const OneAgentJob job(on_loopback());
  const Descriptor fd(connected_to_port_of(address_of(job)));
  const pid_t hub = listener_of(job.socket());
  REQUIRE(send_all(fd.get(), handshake_without_keys()));
  // The hub stops reading, and the kernel may keep unread bytes for a minute: send() must not block.
  const timeval patience{2, 0};
  REQUIRE(setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) == 0);
  // A frame of 64 KiB, with the flag that more frames follow.
  const std::string frame = std::string("\x03\0\0\0\0\0\1\0\0", 9) + std::string(65'536, 'x');
  std::size_t sent = 0;
  while (sent < (std::size_t{1} << 30U) && send_all(fd.get(), frame)) sent += frame.size();
  CHECK(sent < std::size_t{1} << 28U);
  CHECK(resident_mib(hub) < 128);  // The hub checks only every 50 ms, and a local sender is fast.
  CHECK(listener_of(job.socket()) == hub);
  CHECK(job.ask().mode == "dynamic");
}

TEST_CASE("a plan that matches on no rank is refused and a plan that matches on some ranks is committed") {
  for (const std::int64_t matches_on_one : {0, 3}) {
    OneAgentJob job(of_two(0));
    job.begin(Step{1});  // In the first step models may still be watched.
    ScriptedRank one(job, kOne);
    one.join();
    job.ask(command_of(CommandVerb::on));
    const auto offer = one.receive<Offer>();
    one.send(answer_to(offer, matches_on_one));
    if (matches_on_one > 0) one.send(ready_for(one.receive<Prepare>(), 5));
    const HistoryEntry entry = wait_for_verdict(job, offer.revision);
    CHECK(entry.verdict == (matches_on_one == 0 ? "abort" : "commit"));
    CHECK(entry.reason == (matches_on_one == 0 ? "no target matches on any rank" : ""));
    CHECK(entry.final);
  }
}

}  // namespace gradmon
