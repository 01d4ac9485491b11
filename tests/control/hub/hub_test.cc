// SPDX-License-Identifier: Apache-2.0
// Whole hubs in processes of their own, and the messages that reach them.
#include "control/hub/hub.h"

#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <random>

#include "control/files/descriptor.h"
#include "control/host/child_process.h"
#include "control/host/unix_stream.h"
#include "control/hub/transport/command_client.h"
#include "control/hub/transport/rendezvous.h"
#include "tests/control/hub/hub_process.h"
#include "tests/support/catch.h"

namespace gradmon {
namespace {

using Opened = HubProcess::Opened;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Less than the 15 s after which a job drops a silent rank.
constexpr seconds kAtOnce{10};

std::string state_of(HubPeer& client, std::size_t rank) {
  const Status status = client.status();
  return rank < status.ranks.size() ? status.ranks[rank].state : "";
}

// True if a hub listens. The path of the socket exists a moment before it listens.
bool is_listening(const fs::path& socket) {
  const auto fd = connect_unix(socket);
  return fd && Descriptor(*fd).valid();
}

// The lead hub's TCP address, from its entry; "" if there is none in time.
std::string lead_address(const JobPlace& place) {
  std::string address;
  eventually([&] {
    const auto entry = find_entry(place.output(), "launch");
    if (entry) address = entry->address;
    return !address.empty();
  });
  return address;
}

// Frames that a hub must not take from a peer: bytes that are no frame, replies, and `unexpected`.
std::vector<std::string> nonsense_of(const Frame& unexpected) {
  std::mt19937 random(1);
  std::string noise(5'000, '\0');
  for (char& c : noise) c = static_cast<char>(random());
  return {"x", noise, std::string(60'000, '\xff'), encode(Frame(AddressedReply{"x", CommandReply{}})),
          encode(unexpected)};
}

// --- Who may send which messages. ---

TEST_CASE("a client is answered without an introduction before and after the first rank") {
  const JobPlace place;
  const HubProcess hub(place);
  REQUIRE(hub.opened() == Opened::runs);
  HubPeer client(place);
  const CommandReply early = client.ask(CommandVerb::status);
  CHECK(early.outcome == CommandOutcome::no_lead);
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

TEST_CASE("a peer that sends a rank's message without an introduction is cut off alone") {
  HubWithRanks job(1);
  HubPeer foreign_peer(job.place);
  foreign_peer.pose_as(job.rank(0));
  foreign_peer.say(0, Left{Step{5}});
  CHECK(foreign_peer.is_closed());
  CHECK(state_of(job.client, 0) == "idle");
  CHECK(job.rank(0).is_heard(0));
}

TEST_CASE("a rank that sends for another rank is cut off and the other rank stays") {
  HubWithRanks job(2);
  job.rank(1).pose_as(job.rank(0));
  job.rank(1).say(0, Left{Step{5}});
  CHECK(job.rank(1).is_closed());
  CHECK(state_of(job.client, 0) == "idle");
  // Only a hub may send a bundle with several addresses.
  HubPeer again(job.place);
  again.introduce(job.place, 1, 2);
  again.send(Bundles{{job.rank(0).epoch, {{1, 1}, {0, job.rank(0).incarnation}}, Left{Step{5}}}});
  CHECK(again.is_closed());
  CHECK(state_of(job.client, 0) == "idle");
}

TEST_CASE("a rank may introduce itself again but is cut off if it gives another number") {
  HubWithRanks job(3);
  job.rank(1).introduce(job.place, 1, 3);
  CHECK(job.rank(1).is_heard(1));
  job.rank(1).close();
  CHECK(eventually([&] { return state_of(job.client, 1) == "dropped"; }, kAtOnce));
  job.rank(2).introduce(job.place, 0, 3);
  CHECK(job.rank(2).is_closed());
  CHECK(state_of(job.client, 0) == "idle");
}

TEST_CASE("a rank of another launch is cut off") {
  const JobPlace place;
  const HubProcess hub(place);
  const JobPlace other("another");
  HubPeer rank(place);
  rank.introduce(other, 0, 1);
  CHECK(rank.is_closed());
  HubPeer client(place);
  CHECK(client.ask(CommandVerb::status).outcome == CommandOutcome::no_lead);
}

TEST_CASE("a peer that sends an invalid frame is cut off and nobody else is affected") {
  HubWithRanks job(1);
  std::vector<std::string> nonsense = nonsense_of(Frame(Status{}));
  nonsense.push_back(encode(Frame(HubLogLine{LogLevel::error, "x"})));
  for (const int number : {-1, 1, 1 << 30})
    nonsense.push_back(encode(Frame(introduction_of(job.place, number, 1))));
  for (const std::string& bytes : nonsense) {
    CAPTURE(bytes.substr(0, 50));
    HubPeer foreign_peer(job.place);
    foreign_peer.send_bytes(bytes);
    CHECK(foreign_peer.is_closed());
  }
  // Messages that only hubs send, and messages with an unknown incarnation, are ignored.
  HubPeer other(job.place);
  other.introduce(job.place, 0, 1);
  other.pose_as(job.rank(0));
  ++other.incarnation;
  for (const Message& message :
       std::vector<Message>{Left{Step{5}}, Disconnected{}, Progress{}, Ready{}, Applied{}, Finished{}, Busy{},
                            Reject{}, Offered{}, Welcome{}, Decided{}, Replaced{}, LeftAck{}, DryRunAnswer{},
                            AlertReport{}, ReplicaRequest{}}) {
    other.say(0, message);
  }
  CHECK(other.status().ranks.size() == 1);
  CHECK(state_of(job.client, 0) == "idle");
  CHECK(job.rank(0).is_heard(0));
  CHECK_FALSE(job.hub.ended_within(milliseconds{0}));
}

TEST_CASE("an invalid world size or a missing config does not end the hub") {
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

// --- Ranks that join and leave. ---

TEST_CASE("rank 0 is sent the status of the job without asking") {
  HubWithRanks job(2);
  CHECK(job.rank(0).next<Status>([](const Status& status) { return status.ranks.at(1).state == "idle"; }));
}

TEST_CASE("a rank whose connection closes is dropped at once unless it has left") {
  HubWithRanks job(3);
  job.rank(1).close();
  job.rank(2).say(2, Left{Step{5}});
  CHECK(job.rank(2).hear<LeftAck>());
  job.rank(2).close();
  CHECK(eventually([&] { return state_of(job.client, 1) == "dropped"; }, kAtOnce));
  CHECK(state_of(job.client, 2) == "left");
}

TEST_CASE("ranks that join before rank 0 are answered when it has joined") {
  const JobPlace place;
  const HubProcess hub(place);
  HubPeer rank1(place);
  rank1.introduce(place, 1, 2);
  rank1.send(Bundles{{"", {{1, 0}}, hello_of(place, 2, rank1.process_id)}});
  HubPeer client(place);
  CHECK(client.ask(CommandVerb::status).outcome == CommandOutcome::no_lead);
  HubPeer rank0(place);
  rank0.join(place, 0, 2);
  const auto welcome = rank1.hear<Welcome>();
  REQUIRE(welcome);
  CHECK(welcome->process_id == rank1.process_id);
  CHECK(rank1.epoch == rank0.epoch);
}

TEST_CASE("a hub ends soon after its last rank and leaves only its log") {
  for (const bool says_so : {true, false}) {
    HubWithRanks job(2);
    write_text(job.place.directory.log(), "a line\n");
    CHECK(job.client.status().ranks.size() == 2);
    REQUIRE(eventually([&] { return !read_entries(job.place.output()).empty(); }));
    job.rank(1).close();
    if (says_so) {
      job.rank(0).say(0, Left{Step{5}});
      CHECK(job.rank(0).hear<LeftAck>());
    }
    CHECK_FALSE(job.hub.ended_within(milliseconds{500}));
    job.rank(0).close();
    CHECK(job.hub.ended_within(kAtOnce));
    CHECK(job.place.files() == std::vector<std::string>{"hub.log"});
    CHECK(read_entries(job.place.output()).empty());
    CHECK(job.client.is_closed());
  }
}

TEST_CASE("a hub of a test has no file of the test, and no other file at the number of one") {
  const Pipe pipe = make_pipe(0).value();
  const Descriptor socket(::socket(AF_UNIX, SOCK_STREAM, 0));
  const JobPlace place;
  const HubProcess hub(place);
  for (const int fd : {pipe.from.get(), pipe.to.get(), socket.get()}) CHECK(hub.open_file(fd) == "/dev/null");
}

TEST_CASE("a hub to which no rank connects ends by itself") {
  const JobPlace place;
  HubProcess hub(place);
  HubPeer client(place);
  CHECK(hub.ended_within(seconds(30)));
  CHECK(place.files().empty());
}

// --- The directory. ---

TEST_CASE("only one of several hubs runs in one directory") {
  const JobPlace place;
  const auto hubs = HubProcess::start_together(place, 5);
  const auto count = [&](Opened opened) {
    return std::count_if(hubs.begin(), hubs.end(), [&](const auto& hub) { return hub->opened() == opened; });
  };
  CHECK(count(Opened::runs) == 1);
  CHECK(count(Opened::taken) == 4);
  HubPeer rank(place);
  CHECK(rank.join(place, 0, 1).refused.empty());
}

TEST_CASE("a removed directory is made again and the ranks stay connected") {
  HubWithRanks job(1);
  const JobPlace& place = job.place;
  for (int i = 0; i < 2; ++i) {
    remove_whole(place.directory.path.parent_path());
    REQUIRE(eventually([&] { return is_listening(place.directory.socket()); }));
    HubPeer client(place);
    CHECK(client.status().epoch == job.rank(0).epoch);
    CHECK(eventually([&] { return fs::exists(place.directory.decisions()); }));
    CHECK(job.rank(0).is_heard(0));
  }
  CHECK(HubProcess(place).opened() == Opened::taken);
  job.rank(0).close();
  CHECK(job.hub.ended_within(kAtOnce));
  CHECK(place.files().empty());
}

TEST_CASE("a hub whose directory another hub has taken ends and leaves that hub's files alone") {
  const JobPlace place;
  HubProcess first(place);
  HubPeer rank(place);
  rank.join(place, 0, 1);
  first.kill(SIGSTOP);  // until the second hub has taken over
  fs::remove_all(place.directory.path);
  REQUIRE(place.directory.ensure());
  HubProcess second(place);
  REQUIRE(second.opened() == Opened::runs);
  first.kill(SIGCONT);
  CHECK(first.ended_within(kAtOnce));
  CHECK(rank.is_closed());
  HubPeer again(place);
  CHECK(again.join(place, 0, 1).refused.empty());
  CHECK(again.epoch != rank.epoch);
  CHECK(fs::exists(place.directory.decisions()));
}

TEST_CASE("a directory that is open to other users is refused") {
  const JobPlace place;
  fs::permissions(place.directory.path, fs::perms(0755));
  CHECK(HubProcess(place).opened() == Opened::cannot);
}

// --- Other hosts. ---

struct Network {
  JobPlace here, there{"launch"};  // two hosts
  HubProcess lead{here}, relay{there};
};

TEST_CASE("ranks of another host join the lead hub through the hub of their host") {
  const Network net;
  HubPeer rank0(net.here), client(net.here);
  rank0.join(net.here, 0, 3, "tcp://127.0.0.1:*");
  const std::string address = lead_address(net.here);
  REQUIRE_FALSE(address.empty());
  HubPeer rank1(net.there), rank2(net.there);
  CHECK(rank1.join(net.there, 1, 3, address).refused.empty());
  CHECK(rank2.join(net.there, 2, 3, address).refused.empty());
  CHECK(rank1.epoch == rank0.epoch);
  CHECK(rank1.is_heard(1));
  // The relay passes a command on to the lead hub.
  HubPeer there(net.there);
  CHECK(there.status().epoch == rank0.epoch);
  CHECK(state_of(client, 1) == "idle");
  rank1.close();
  CHECK(eventually([&] { return state_of(client, 1) == "dropped"; }, kAtOnce));
  CHECK(state_of(client, 2) == "idle");
}

TEST_CASE("large messages that ranks of another host send at once all reach the lead hub") {
  const Network net;
  HubPeer rank0(net.here);
  rank0.join(net.here, 0, 5, "tcp://127.0.0.1:*");
  const std::string address = lead_address(net.here);
  REQUIRE_FALSE(address.empty());
  auto plan = std::make_shared<Plan>();
  plan->config_text = std::string(std::size_t{1'000} << 10U, 'x');
  // The relay is stopped until all ranks have sent Hello, so that it passes all of them on at once.
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

TEST_CASE("invalid messages from the network are dropped and counted in the status") {
  const JobPlace place;
  const HubProcess hub(place);
  HubPeer rank(place), client(place);
  rank.join(place, 0, 1, "tcp://127.0.0.1:*");
  const std::string address = lead_address(place);
  REQUIRE_FALSE(address.empty());
  // A message over the size limit does not arrive, so the status does not count it.
  const auto greedy = *Bus::make_client({kMaxFrameBytes});
  REQUIRE(greedy->connect(address));
  Command question;
  question.request_id = "question";
  REQUIRE(greedy->send("", encode(Frame(question))));
  REQUIRE(greedy->poll(seconds(10), -1));  // connected
  REQUIRE(greedy->send("", std::string(kMaxFrameBytes + 1'000, 'x')));
  const auto foreign_peer = *Bus::make_client({kMaxFrameBytes});
  REQUIRE(foreign_peer->connect(address));
  std::vector<std::string> nonsense = nonsense_of(Frame(Introduction{}));
  nonsense.insert(nonsense.begin(), "");
  for (const std::string& bytes : nonsense) foreign_peer->send("", bytes);
  for (const int number : {-1, 1, 1 << 30}) {
    foreign_peer->send("", encode(Frame(Bundles{{rank.epoch, {{number, 1}}, Left{Step{5}}}})));
    foreign_peer->send("", encode(Frame(Bundles{{"", {{number, 0}}, hello_of(place, 2, "p")}})));
  }
  const std::string wanted =
      std::to_string(nonsense.size()) + " messages from the network dropped; the last: ";
  const auto is_warned = [&] {
    const std::vector<std::string> lines = client.status().warnings;
    return std::count(lines.begin(), lines.end(),
                      wanted + "unexpected message type: a reply that no request asked for") == 1;
  };
  CHECK(eventually(is_warned));
  CHECK(state_of(client, 0) == "idle");
  CHECK(rank.is_heard(0));
  CHECK(is_warned());
}

}  // namespace
}  // namespace gradmon
