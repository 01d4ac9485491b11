// SPDX-License-Identifier: Apache-2.0
// Whole hubs, and what comes to them by their Unix socket.
#include "control/hub/hub.h"

#include <signal.h>
#include <unistd.h>

#include <memory>
#include <random>
#include <vector>

#include "control/client/command_client.h"
#include "control/debian_version.h"
#include "control/files/descriptor.h"
#include "control/host/process_identity.h"
#include "control/host/unix_socket.h"
#include "control/hub/rendezvous/job_entry.h"
#include "tests/control/hub/hub_process.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

namespace fs = std::filesystem;
using Opened = HubProcess::Opened;
using std::chrono::milliseconds;
using std::chrono::seconds;

std::string state_of(HubPeer& client, std::size_t rank) {
  const Status status = client.status();
  return rank < status.ranks.size() ? status.ranks[rank].state : "";
}

// A socket is at its path an instant before it listens.
bool answers(const fs::path& socket) {
  const auto fd = connect_unix(socket);
  return fd && Descriptor(*fd).valid();
}

// --- Who may say what. ---

TEST_CASE("a client without introduction is answered, before a rank has come and after") {
  const JobPlace place;
  const HubProcess hub(place);
  REQUIRE(hub.opened() == Opened::runs);
  HubPeer client(place);
  const CommandReply early = client.ask(CommandVerb::status);
  CHECK(early.outcome == CommandOutcome::failed);
  CHECK(early.message == "no rank of this job has connected yet");
  HubPeer rank(place);
  rank.join(place, 0, 1);
  const Status status = client.status();
  CHECK(status.launch_id == "launch");
  CHECK(status.name == "name");
  CHECK(status.torch == "2.5");
  CHECK(status.config_path == place.config().string());
  CHECK(status.epoch == rank.epoch);
  CHECK(CommandClient(place.endpoint()).ask(Command{}, seconds(10)));
}

TEST_CASE("who speaks for a rank without an introduction is cut off and others notice nothing") {
  const JobPlace place;
  const HubProcess hub(place);
  HubPeer rank(place);
  rank.join(place, 0, 1);
  HubPeer stranger(place);
  stranger.epoch = rank.epoch;
  stranger.incarnation = rank.incarnation;
  stranger.say(0, Left{Step{5}});
  CHECK(stranger.is_closed());
  HubPeer client(place);
  CHECK(state_of(client, 0) == "idle");
  CHECK(rank.open());
}

TEST_CASE("a rank that speaks for another is cut off and the other stays") {
  const JobPlace place;
  const HubProcess hub(place);
  HubPeer rank0(place), rank1(place);
  rank0.join(place, 0, 2);
  rank1.join(place, 1, 2);
  rank1.epoch = rank0.epoch;
  rank1.incarnation = rank0.incarnation;
  rank1.say(0, Left{Step{5}});
  CHECK(rank1.is_closed());
  HubPeer client(place);
  CHECK(state_of(client, 0) == "idle");
  // Several addresses are for hubs alone.
  HubPeer again(place);
  again.introduce(place, 1, 2);
  again.send(Bundles{{rank0.epoch, {{1, 1}, {0, rank0.incarnation}}, Left{Step{5}}}});
  CHECK(again.is_closed());
  CHECK(state_of(client, 0) == "idle");
}

TEST_CASE("a rank that introduces itself again stays the member it is, and as another rank it is cut off") {
  const JobPlace place;
  const HubProcess hub(place);
  HubPeer rank0(place), rank1(place), rank2(place), client(place);
  rank0.join(place, 0, 3);
  rank1.join(place, 1, 3);
  rank2.join(place, 2, 3);
  rank1.introduce(place, 1, 3);
  rank1.say(1, Progress{});
  CHECK(rank1.hear<ProgressAck>());
  rank1.close();
  CHECK(eventually([&] { return state_of(client, 1) == "dropped"; }, seconds(2)));
  rank2.introduce(place, 0, 3);
  CHECK(rank2.is_closed());
  CHECK(state_of(client, 0) == "idle");
}

TEST_CASE("a rank of another launch is cut off") {
  const JobPlace place;
  const HubProcess hub(place);
  const JobPlace other("another");
  HubPeer rank(place);
  rank.introduce(other, 0, 1);
  CHECK(rank.is_closed());
  HubPeer client(place);
  CHECK(client.ask(CommandVerb::status).outcome == CommandOutcome::failed);
}

TEST_CASE("a second process with a number whose connection lives is refused and both are named") {
  const JobPlace place;
  const HubProcess hub(place);
  HubPeer first(place), second(place);
  first.join(place, 0, 1);
  const Welcome refused = second.join(place, 0, 1);
  CHECK(refused.refused.find("rank 0 already belongs to pid ") == 0);
  CHECK(refused.retry);
  first.say(0, Progress{});
  CHECK(first.hear<ProgressAck>());
  first.close();
  CHECK(eventually([&] { return second.join(place, 0, 1).refused.empty(); }));
}

TEST_CASE("nonsense of every kind costs its sender the connection and nobody else anything") {
  const JobPlace place;
  HubProcess hub(place);
  HubPeer rank(place);
  rank.join(place, 0, 1);
  std::mt19937 random(1);
  std::string noise(5'000, '\0');
  for (char& c : noise) c = static_cast<char>(random());
  std::vector<std::string> nonsense = {"x",
                                       noise,
                                       std::string(60'000, '\xff'),
                                       encode(Frame(AddressedReply{"x", CommandReply{}})),
                                       encode(Frame(Status{})),
                                       encode(Frame(HubLogLine{LogLevel::error, "x"}))};
  for (const std::string& bytes : nonsense) {
    HubPeer stranger(place);
    stranger.send_bytes(bytes);
    CHECK(stranger.is_closed());
  }
  for (const int number : {-1, 1, 1 << 30}) {
    HubPeer stranger(place);
    stranger.introduce(place, number, 1);
    CHECK(stranger.is_closed());
  }
  // What only hubs say, and what was said to nobody here.
  HubPeer other(place);
  other.introduce(place, 0, 1);
  other.epoch = rank.epoch;
  other.incarnation = rank.incarnation + 1;
  for (const Message& message : std::vector<Message>{
           Left{Step{5}}, Disconnected{}, Progress{}, Ready{}, Applied{}, Finished{}, Busy{}, Reject{},
           Offered{}, Welcome{}, Decided{}, Replaced{}, LeftAck{}, DryRunAnswer{}}) {
    other.say(0, message);
  }
  CHECK(other.status().ranks.size() == 1);
  HubPeer client(place);
  CHECK(state_of(client, 0) == "idle");
  rank.say(0, Progress{});
  CHECK(rank.hear<ProgressAck>());
  CHECK_FALSE(hub.ended_within(milliseconds{0}));
}

TEST_CASE("a rank 0 of a world of no size, or with a config nowhere, ends no hub") {
  for (const int world : {0, -1, 1 << 30}) {
    const JobPlace place;
    HubProcess hub(place);
    HubPeer rank(place);
    rank.introduce(place, 0, world);
    CHECK(rank.is_closed());
    HubPeer honest(place);
    CHECK(honest.join(place, 0, 1).refused.empty());
    CHECK_FALSE(hub.ended_within(milliseconds{0}));
  }
  const JobPlace place;
  fs::remove(place.config());
  HubProcess hub(place);
  HubPeer rank(place);
  CHECK(rank.join(place, 0, 1).refused.empty());
  HubPeer client(place);
  CHECK(eventually([&] { return client.status().last_error.has_value(); }));
}

// --- Ranks that come and go. ---

TEST_CASE("rank 0 is shown the state of the job without asking") {
  const JobPlace place;
  const HubProcess hub(place);
  HubPeer rank0(place), rank1(place);
  rank0.join(place, 0, 2);
  rank1.join(place, 1, 2);
  CHECK(rank0.next<Status>([](const Status& status) { return status.ranks.at(1).state == "idle"; }));
}

TEST_CASE("a rank whose process has gone is dropped at once and one that left has left") {
  const JobPlace place;
  const HubProcess hub(place);
  HubPeer rank0(place), rank1(place), rank2(place), client(place);
  rank0.join(place, 0, 3);
  rank1.join(place, 1, 3);
  rank2.join(place, 2, 3);
  const auto begun = std::chrono::steady_clock::now();
  rank1.close();
  rank2.say(2, Left{Step{5}});
  CHECK(rank2.hear<LeftAck>());
  rank2.close();
  CHECK(eventually([&] { return state_of(client, 1) == "dropped"; }));
  CHECK(std::chrono::steady_clock::now() - begun < seconds(2));
  CHECK(state_of(client, 2) == "left");
}

TEST_CASE("ranks that come before rank 0 are heard when it has come") {
  const JobPlace place;
  const HubProcess hub(place);
  HubPeer rank1(place);
  rank1.introduce(place, 1, 2);
  rank1.send(Bundles{{"", {{1, 0}}, hello_of(place, 2, rank1.process_id)}});
  HubPeer client(place);
  CHECK(client.ask(CommandVerb::status).outcome == CommandOutcome::failed);
  HubPeer rank0(place);
  rank0.join(place, 0, 2);
  const auto welcome = rank1.hear<Welcome>();
  REQUIRE(welcome);
  CHECK(welcome->process_id == rank1.process_id);
  CHECK(rank1.epoch == rank0.epoch);
}

TEST_CASE("a hub ends within two seconds after its last rank and leaves nothing but its log") {
  for (const bool says_so : {true, false}) {
    const JobPlace place;
    HubProcess hub(place);
    write_text(place.directory.log(), "a line\n");
    HubPeer rank0(place), rank1(place), client(place);
    rank0.join(place, 0, 2);
    rank1.join(place, 1, 2);
    CHECK(client.status().ranks.size() == 2);
    REQUIRE(eventually([&] { return !read_entries(place.output()).empty(); }));
    rank1.close();
    if (says_so) {
      rank0.say(0, Left{Step{5}});
      CHECK(rank0.hear<LeftAck>());
    }
    CHECK_FALSE(hub.ended_within(milliseconds{500}));
    rank0.close();
    CHECK(hub.ended_within(milliseconds{2'500}));
    CHECK(place.files() == std::vector<std::string>{"hub.log"});
    CHECK(read_entries(place.output()).empty());
    CHECK(client.is_closed());
  }
}

TEST_CASE("a hub that no rank comes to ends by itself") {
  const JobPlace place;
  HubProcess hub(place);
  HubPeer client(place);
  CHECK(hub.ended_within(seconds(12)));
  CHECK(place.files().empty());
}

// --- The directory. ---

TEST_CASE("of several hubs for one directory one runs") {
  const JobPlace place;
  std::vector<std::unique_ptr<HubProcess>> hubs;
  int runs = 0;
  for (int i = 0; i < 5; ++i) {
    hubs.push_back(std::make_unique<HubProcess>(place));
    if (hubs.back()->opened() == Opened::runs) ++runs;
    if (i > 0) CHECK(hubs.back()->opened() == Opened::taken);
  }
  CHECK(runs == 1);
  HubPeer rank(place);
  CHECK(rank.join(place, 0, 1).refused.empty());
}

TEST_CASE("a directory that was removed is made anew and the ranks notice nothing") {
  const JobPlace place;
  HubProcess hub(place);
  HubPeer rank(place);
  rank.join(place, 0, 1);
  for (int i = 0; i < 2; ++i) {
    fs::remove_all(place.directory.path.parent_path());
    REQUIRE(eventually([&] { return answers(place.directory.socket()); }, seconds(3)));
    HubPeer client(place);
    CHECK(client.status().epoch == rank.epoch);
    CHECK(eventually([&] { return fs::exists(place.directory.decisions()); }, seconds(3)));
    rank.say(0, Progress{});
    CHECK(rank.hear<ProgressAck>());
  }
  CHECK(HubProcess(place).opened() == Opened::taken);
  rank.close();
  CHECK(hub.ended_within(seconds(3)));
  CHECK(place.files().empty());
}

TEST_CASE("a hub whose directory another one holds ends and touches nothing of it") {
  const JobPlace place;
  HubProcess first(place);
  HubPeer rank(place);
  rank.join(place, 0, 1);
  first.kill(SIGSTOP);  // as long as it takes
  fs::remove_all(place.directory.path);
  REQUIRE(place.directory.ensure());
  HubProcess second(place);
  REQUIRE(second.opened() == Opened::runs);
  first.kill(SIGCONT);
  CHECK(first.ended_within(seconds(5)));
  CHECK(rank.is_closed());
  HubPeer again(place);
  CHECK(again.join(place, 0, 1).refused.empty());
  CHECK(again.epoch != rank.epoch);
  CHECK(fs::exists(place.directory.decisions()));
}

TEST_CASE("a directory that others may use is not taken") {
  const JobPlace place;
  fs::permissions(place.directory.path, fs::perms(0755));
  CHECK(HubProcess(place).opened() == Opened::cannot);
}

TEST_CASE("after a kill the next hub goes on with the epoch and the members of the first") {
  const JobPlace place;
  auto hub = std::make_unique<HubProcess>(place);
  std::string epoch;
  {
    HubPeer rank0(place), rank1(place);
    rank0.join(place, 0, 2);
    rank1.join(place, 1, 2);
    epoch = rank0.epoch;
    hub->kill(SIGKILL);
    REQUIRE(hub->ended_within(seconds(5)));
    CHECK(rank0.is_closed());
  }
  hub = std::make_unique<HubProcess>(place);
  REQUIRE(hub->opened() == Opened::runs);
  HubPeer rank0(place);
  CHECK(rank0.join(place, 0, 2).refused ==
        "rank 0 already belongs to pid " + std::to_string(getpid()) + " on " + host_name());
  CHECK(rank0.epoch == epoch);
  HubPeer client(place);
  CHECK(client.status().ranks.at(1).state != "absent");
}

// --- Other hosts. ---

struct Network {
  JobPlace here, there{"launch"};  // two hosts
  HubProcess lead{here}, relay{there};
};

TEST_CASE("ranks of another host join the lead by way of their hub") {
  const Network net;
  HubPeer rank0(net.here), client(net.here);
  rank0.join(net.here, 0, 3, "tcp://127.0.0.1:*");
  std::string address;
  REQUIRE(eventually([&] {
    const auto entry = find_entry(net.here.output(), "launch");
    if (entry) address = entry->address;
    return !address.empty();
  }));
  HubPeer rank1(net.there), rank2(net.there);
  CHECK(rank1.join(net.there, 1, 3, address).refused.empty());
  CHECK(rank2.join(net.there, 2, 3, address).refused.empty());
  CHECK(rank1.epoch == rank0.epoch);
  rank1.say(1, Progress{});
  CHECK(rank1.hear<ProgressAck>());
  // A client of that host is answered by the lead.
  HubPeer there(net.there);
  CHECK(there.status().epoch == rank0.epoch);
  CHECK(state_of(client, 1) == "idle");
  rank1.close();
  CHECK(eventually([&] { return state_of(client, 1) == "dropped"; }, seconds(3)));
  CHECK(state_of(client, 2) == "idle");
}

TEST_CASE("what ranks of another host say at once reaches the lead whatever its length") {
  const Network net;
  HubPeer rank0(net.here);
  rank0.join(net.here, 0, 5, "tcp://127.0.0.1:*");
  std::string address;
  REQUIRE(eventually([&] {
    const auto entry = find_entry(net.here.output(), "launch");
    if (entry) address = entry->address;
    return !address.empty();
  }));
  auto plan = std::make_shared<Plan>();
  plan->config_text = std::string(std::size_t{1'000} << 10U, 'x');
  // The relay stands still until all have spoken.
  std::vector<std::unique_ptr<HubPeer>> ranks;
  for (int rank = 1; rank < 5; ++rank) {
    ranks.push_back(std::make_unique<HubPeer>(net.there));
    ranks.back()->introduce(net.there, rank, 5, address);
    ranks.back()->ask(CommandVerb::status);
  }
  net.relay.kill(SIGSTOP);
  for (int rank = 1; rank < 5; ++rank) {
    HubPeer& peer = *ranks[static_cast<std::size_t>(rank - 1)];
    Hello hello = hello_of(net.there, 5, peer.process_id);
    hello.held_epoch = "another";
    hello.held = Verdict{Revision{1}, plan, Step{1}, AbortReason::none, ""};
    hello.lapsed = false;
    peer.send(Bundles{{"", {{rank, 0}}, hello}});
  }
  net.relay.kill(SIGCONT);
  for (auto& rank : ranks) CHECK(rank->hear<Welcome>());
}

TEST_CASE("a hub that finds no lead says so to its clients") {
  const JobPlace place;
  const HubProcess hub(place);
  HubPeer rank(place), client(place);
  rank.introduce(place, 1, 2);
  CommandReply reply;
  CHECK(eventually([&] {
    reply = client.ask(CommandVerb::status);
    return reply.message == "the lead hub is not found yet";
  }));
  CHECK(reply.outcome == CommandOutcome::failed);
}

TEST_CASE("messages from the network that make no sense are dropped, counted and told in the status") {
  const JobPlace place;
  const HubProcess hub(place);
  HubPeer rank(place), client(place);
  rank.join(place, 0, 1, "tcp://127.0.0.1:*");
  std::string address;
  REQUIRE(eventually([&] {
    const auto entry = find_entry(place.output(), "launch");
    if (entry) address = entry->address;
    return !address.empty();
  }));
  const auto stranger = *Bus::make_client({kMaxFrameBytes});
  REQUIRE(stranger->connect(address));
  std::mt19937 random(1);
  std::string noise(5'000, '\0');
  for (char& c : noise) c = static_cast<char>(random());
  const std::vector<std::string> nonsense = {"", "x", noise, std::string(60'000, '\xff'),
                                             encode(Frame(AddressedReply{"x", CommandReply{}})),
                                             encode(Frame(Introduction{}))};
  for (const std::string& bytes : nonsense) stranger->send("", bytes);
  for (const int number : {-1, 1, 1 << 30}) {
    stranger->send("", encode(Frame(Bundles{{rank.epoch, {{number, 1}}, Left{Step{5}}}})));
    stranger->send("", encode(Frame(Bundles{{"", {{number, 0}}, hello_of(place, 2, "p")}})));
  }
  const std::string wanted = std::to_string(nonsense.size()) + " messages from the network dropped; the last: ";
  CHECK(eventually([&] {
    for (const std::string& line : client.status().warnings) {
      if (line == wanted + "unexpected message type: a reply that no request asked for") return true;
    }
    return false;
  }));
  // What is over the bound costs its sender the connection.
  stranger->send("", std::string(kMaxFrameBytes + 1'000, 'x'));
  CHECK(state_of(client, 0) == "idle");
  CHECK(rank.open());
}

}  // namespace
}  // namespace gradmon
