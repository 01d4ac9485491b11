// SPDX-License-Identifier: Apache-2.0
// Hubs of several hosts, all on this one, that generate their keys and find each other.
#include <signal.h>

#include "control/hub/transport/bus.h"
#include "control/hub/transport/rendezvous.h"
#include "tests/control/hub/hub_process.h"
#include "tests/support/catch.h"

namespace gradmon {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Two hosts of one job, with one output directory.
struct Hosts {
  JobPlace here, there;
  std::unique_ptr<HubProcess> lead = std::make_unique<HubProcess>(here);
  std::unique_ptr<HubProcess> relay = std::make_unique<HubProcess>(there);

  Introduction rank(int rank, int world = 2) const {
    Introduction said = introduction_of(rank == 0 ? here : there, rank, world);
    said.output_dir = here.output().string();
    said.insecure_loopback = false;
    said.several_hosts = true;
    if (rank == 0) said.endpoint = "tcp://127.0.0.1:*";
    return said;
  }
  JobEntry entry() const {
    const auto found = find_entry(here.output(), "launch");
    REQUIRE(found);
    return *found;
  }
  // Kills the lead hub and starts the next one, with or without the keys of the first.
  void restart_lead(bool without_directory) {
    lead->kill(SIGKILL);
    REQUIRE(lead->ended_within(seconds(60)));
    // Only now: a hub that runs would make the directory again, with its old keys.
    if (without_directory) std::filesystem::remove_all(here.directory.path);
    REQUIRE(here.directory.ensure());
    lead = std::make_unique<HubProcess>(here);
  }
};

bool is_acknowledged(HubPeer& peer, int rank) {
  return eventually([&] { return peer.is_heard(rank); }, seconds(30));
}

TEST_CASE("hubs generate their keys and find each other in the output directory") {
  const Hosts hosts;
  HubPeer rank0(hosts.here), rank1(hosts.there);
  rank0.join(hosts.here, hosts.rank(0));
  CHECK(rank1.join(hosts.there, hosts.rank(1)).refused.empty());
  CHECK(rank1.epoch == rank0.epoch);
  const JobEntry entry = hosts.entry();
  CHECK(entry.key.size() == 40);
  CHECK(hosts.there.files() == std::vector<std::string>{"hub.sock", "keys", "lock"});
  // A client without a key, or with a key that no note names, is not answered.
  for (const bool with_key : {false, true}) {
    std::optional<ClientKeys> keys;
    if (with_key) {
      keys.emplace();
      keys->secret = SecretKey(KeyBytes{1, 2, 3});
      from_z85(entry.key, keys->server_public);
    }
    const auto foreign_peer = *Bus::make_client({kMaxFrameBytes}, std::move(keys));
    REQUIRE(foreign_peer->connect(entry.address));
    foreign_peer->send("", encode(Frame(Command{})));
    CHECK_FALSE(foreign_peer->poll(milliseconds{1'000}, -1));
  }
}

TEST_CASE("alerts of a rank of another host reach the lead hub") {
  const Hosts hosts;
  HubPeer rank0(hosts.here), rank1(hosts.there);
  rank0.join(hosts.here, hosts.rank(0));
  CHECK(rank1.join(hosts.there, hosts.rank(1)).takes_alerts);
  HubPeer client(hosts.here);
  AlertReport report;
  report.alerts.resize(2);
  report.alerts[0].tag_name = "0:fc1.weight/rank1/post_grad";
  rank1.say(1, report);
  CommandReply reply;
  REQUIRE(eventually([&] {
    reply = client.ask(CommandVerb::alerts);
    return reply.alerts.size() == 2;
  }));
  CHECK(reply.alerts[0].rank == Rank{1});
  CHECK(reply.alerts[0].tag_name == report.alerts[0].tag_name);
  // The relay bounds how many reports it passes on; nothing else suffers.
  for (int i = 0; i < 1'000; ++i) rank1.say(1, report);
  CHECK(is_acknowledged(rank1, 1));
}

// Passes on the notes of two ranks, as training's store does, until `done`.
bool exchange_notes(HubPeer& rank0, HubPeer& rank1, const std::function<bool()>& done) {
  return eventually(
      [&] {
        const auto entry = rank0.next<StoreNotes>();
        const auto note = rank1.next<StoreNotes>();
        if (note && !note->own_note.empty()) rank0.send(StoreNotes{"", {"nonsense", note->own_note}});
        if (entry && !entry->own_note.empty()) rank1.send(StoreNotes{"", {entry->own_note}});
        return eventually(done, seconds(2));
      },
      seconds(30));
}

TEST_CASE("hubs without a common directory find each other through training's store") {
  const Hosts hosts;
  Introduction first = hosts.rank(0), second = hosts.rank(1);
  second.output_dir = hosts.there.output().string();
  first.has_store = second.has_store = true;
  HubPeer rank0(hosts.here), rank1(hosts.there);
  rank0.join(hosts.here, first);
  rank1.send(second);
  REQUIRE(exchange_notes(rank0, rank1, [&] {
    rank1.send(Bundles{{"", {{1, 0}}, hello_of(hosts.there, 2, rank1.process_id)}});
    return HubPeer(hosts.there).ask(CommandVerb::status).status.has_value();  // A silent client is cut off.
  }));
  const auto welcome = rank1.hear<Welcome>();
  REQUIRE(welcome);
  CHECK(welcome->refused.empty());
  CHECK(rank1.epoch == rank0.epoch);
}

TEST_CASE("a lead hub restarted after a kill is found again, with its key if its directory is still there") {
  const bool without_directory = GENERATE(false, true);
  Hosts hosts;
  auto rank0 = std::make_unique<HubPeer>(hosts.here);
  HubPeer rank1(hosts.there);
  rank0->join(hosts.here, hosts.rank(0));
  rank1.join(hosts.there, hosts.rank(1));
  const JobEntry before = hosts.entry();
  hosts.restart_lead(without_directory);
  rank0 = std::make_unique<HubPeer>(hosts.here);
  rank0->join(hosts.here, hosts.rank(0));
  if (without_directory) {
    HubPeer again(hosts.there);
    CHECK(again.join(hosts.there, hosts.rank(1)).process_id == again.process_id);
  } else {
    CHECK(eventually([&] {  // The relay passes it on for some seconds only.
      rank1.say(1, Progress{});
      return rank1.hear<RejoinRequest>(seconds(2)).has_value();
    }));
    Hello again = hello_of(hosts.there, 2, rank1.process_id);
    again.number = 2;
    rank1.send(Bundles{{"", {{1, 0}}, again}});
    CHECK(rank1.hear<Welcome>());
    CHECK(is_acknowledged(rank1, 1));
  }
  CHECK((hosts.entry().key == before.key) == !without_directory);
}

TEST_CASE("hubs of containers on one host find each other and the lead hub listens at loopback") {
  const Hosts hosts;
  const auto contained = [&](int rank) {
    Introduction said = hosts.rank(rank);
    said.several_hosts = false;
    said.endpoint.clear();
    said.master_addr = "127.0.0.1";
    return said;
  };
  HubPeer rank0(hosts.here), rank1(hosts.there);
  rank0.join(hosts.here, contained(0));
  CHECK(rank1.join(hosts.there, contained(1)).refused.empty());
  CHECK(rank1.epoch == rank0.epoch);
  const JobEntry entry = hosts.entry();
  CHECK(entry.address.rfind("tcp://127.0.0.1:", 0) == 0);
}

TEST_CASE("a hub that was a relay until rank 0 came does not listen for its own note") {
  const Hosts hosts;
  Introduction first = hosts.rank(1, 3), zero = hosts.rank(0, 3);
  first.several_hosts = zero.several_hosts = std::nullopt;
  first.has_store = zero.has_store = true;
  zero.endpoint.clear();
  HubPeer rank1(hosts.here), rank0(hosts.here);
  rank1.send(first);
  const auto asked = rank1.next<StoreNotes>();
  REQUIRE(asked);
  rank0.join(hosts.here, zero);
  for (int i = 0; i < 4; ++i) {
    rank0.send(StoreNotes{"", {asked->own_note}});
    const auto again = rank0.next<StoreNotes>();  // with the lead hub's entry where it listens
    REQUIRE(again);
    CHECK(again->own_note.empty());
  }
}

TEST_CASE("a hub tells its ranks why it cannot reach the lead hub until it can") {
  const Hosts hosts;
  HubPeer rank1(hosts.there), client(hosts.there);
  rank1.send(hosts.rank(1));
  CHECK(rank1.next<Status>(
      [](const Status& status) { return status.reason == "the lead hub is not found yet"; }));
  JobEntry silent;
  silent.launch_id = "launch";
  silent.host = "elsewhere";
  silent.endpoint = "ipc:///nowhere";
  silent.trouble = "no room";
  REQUIRE(write_entry(hosts.here.output(), silent));
  const std::string why = "the lead hub on elsewhere does not listen for other hosts: no room";
  CHECK(rank1.next<Status>([&](const Status& status) { return status.reason == why; }));
  CHECK(client.ask(CommandVerb::status).message == why);
  HubPeer rank0(hosts.here);
  rank0.join(hosts.here, hosts.rank(0));
  CHECK(rank1.join(hosts.there, hosts.rank(1)).refused.empty());
  CHECK(rank1.next<Status>([](const Status& status) { return status.reason.empty(); }));
}

TEST_CASE("a rank of another host that disconnects before its Welcome is dropped at once") {
  const Hosts hosts;
  HubPeer rank0(hosts.here), rank2(hosts.there);
  rank0.join(hosts.here, hosts.rank(0, 3));
  rank2.join(hosts.there, hosts.rank(2, 3));
  hosts.lead->kill(SIGSTOP);
  {
    HubPeer rank1(hosts.there);
    rank1.send(hosts.rank(1, 3));
    rank1.send(Bundles{{"", {{1, 0}}, hello_of(hosts.there, 3, rank1.process_id)}});
  }
  // When the relay has cut off a later peer, it has seen the end of rank 1.
  HubPeer later(hosts.there);
  later.send_bytes("nonsense");
  REQUIRE(later.is_closed());
  const auto begun = std::chrono::steady_clock::now();
  hosts.lead->kill(SIGCONT);
  CHECK(rank0.next<Status>([](const Status& status) { return status.ranks.at(1).state == "dropped"; }));
  CHECK(std::chrono::steady_clock::now() - begun < seconds(12));  // A rank that is only silent: after 15 s.
}

TEST_CASE("if rank 0 moves to another host its former hub ends and the next hub there is a relay") {
  Hosts hosts;
  HubPeer other(hosts.here);
  {
    HubPeer rank0(hosts.here);
    rank0.join(hosts.here, hosts.rank(0, 3));
    Introduction second = hosts.rank(1, 3);
    CHECK(other.join(hosts.here, second).refused.empty());
    REQUIRE(eventually([&] { return find_entry(hosts.here.output(), "launch").has_value(); }));
  }
  Introduction moved = hosts.rank(0, 3);
  HubPeer rank0(hosts.there);
  rank0.join(hosts.there, moved);
  CHECK(hosts.lead->ended_within(seconds(10)));
  CHECK(other.is_closed());
  hosts.lead = std::make_unique<HubProcess>(hosts.here);
  HubPeer again(hosts.here);
  CHECK(again.join(hosts.here, hosts.rank(1, 3)).refused.empty());
  CHECK(again.epoch == rank0.epoch);
  const JobEntry entry = hosts.entry();
  CHECK(entry.epoch == rank0.epoch);
}

}  // namespace
}  // namespace gradmon
