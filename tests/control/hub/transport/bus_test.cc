// SPDX-License-Identifier: Apache-2.0
// A Bus with keys, over real sockets.
#include "control/hub/transport/bus.h"

#include <unistd.h>

#include "control/files/descriptor.h"
#include "control/hub/transport/curve_keys.h"
#include "tests/support/catch.h"
#include "tests/support/resource_limit.h"
#include "tests/support/temporary_directory.h"

namespace gradmon {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kSoon{60'000};

struct ConnectedBuses {
  std::unique_ptr<Bus> listener = *Bus::make_server("tcp://127.0.0.1:*", InsecureLoopback::allowed, {1000});
  std::string endpoint = listener->endpoint();
  std::unique_ptr<Bus> asker = *Bus::make_client({100'000});
  ConnectedBuses() { REQUIRE(asker->connect(endpoint)); }
};

TEST_CASE("a question reaches the listener and its answer comes back") {
  ConnectedBuses buses;
  REQUIRE(buses.asker->send("", "question"));
  const auto question = buses.listener->poll(kSoon, -1);
  REQUIRE(question);
  REQUIRE(question->bytes == "question");
  REQUIRE(buses.listener->send(question->peer, "answer"));
  REQUIRE(buses.asker->poll(kSoon, -1)->bytes == "answer");
}

TEST_CASE("a message over the size limit is not delivered and a shorter one still is") {
  ConnectedBuses buses;
  REQUIRE(buses.asker->send("", "short"));
  REQUIRE(buses.listener->poll(kSoon, -1)->bytes == "short");  // connected: the next one would arrive first
  REQUIRE(buses.asker->send("", std::string(50'000, 'x')));
  auto honest = *Bus::make_client({1000});
  REQUIRE(honest->connect(buses.endpoint));
  REQUIRE(honest->send("", "honest"));
  REQUIRE(buses.listener->poll(kSoon, -1)->bytes == "honest");
  CHECK_FALSE(buses.listener->poll(milliseconds(200), -1));
}

// Like a hub: polls the descriptors itself, and takes all messages.
TEST_CASE("polling the descriptors reports every message and loses none") {
  ConnectedBuses buses;
  int heard = 0;
  for (int sent = 1; sent <= 50; ++sent) {
    REQUIRE(buses.asker->send("", "x"));
    while (heard < sent) {
      std::vector<pollfd> polled{{-1, 0, 0}};
      buses.listener->add_to(polled);
      REQUIRE(polled.size() >= 2);
      REQUIRE(::poll(polled.data(), polled.size(), 5'000) > 0);
      while (buses.listener->poll(milliseconds{0}, -1)) ++heard;
    }
  }
  CHECK(heard == 50);
}

TEST_CASE("a wake-up ends a wait without a message") {
  ConnectedBuses buses;
  const Pipe wake = make_pipe(0).value();
  REQUIRE(write(wake.to.get(), "x", 1) == 1);
  CHECK_FALSE(buses.listener->poll(std::chrono::minutes(1), wake.from.get()));
}

TEST_CASE("sending to an unknown peer fails") {
  ConnectedBuses buses;
  REQUIRE_FALSE(buses.listener->send("nobody", "x"));
}

TEST_CASE("a bind without keys is refused unless it is on loopback and the user allows it") {
  const auto why = [](const std::string& endpoint) {
    return bind_objection(endpoint, InsecureLoopback::refused);
  };
  REQUIRE(why("tcp://127.0.0.1:5555").find("GRADMON_INSECURE_LOOPBACK=1") != std::string::npos);
  REQUIRE(bind_objection("tcp://127.0.0.1:5555", InsecureLoopback::allowed).empty());
  for (const char* endpoint : {"tcp://0.0.0.0:5555", "tcp://*:5555", "tcp://192.168.1.2:1", "tcp://[::]:1"}) {
    CAPTURE(endpoint);
    REQUIRE(bind_objection(endpoint, InsecureLoopback::allowed).find("keys") != std::string::npos);
  }
  for (const char* endpoint :
       {"", "ipc:///tmp/x", "ipc://@abstract", "inproc://x", "udp://127.0.0.1:1", "tcp://"}) {
    CAPTURE(endpoint);
    REQUIRE_FALSE(bind_objection(endpoint, InsecureLoopback::allowed).empty());
  }
}

TEST_CASE("too few free descriptors are an error and not an abort") {
  const auto bus = [] {
    const DescriptorLimit scarce(20);
    return Bus::make_client({1000});
  }();
  REQUIRE_FALSE(bus);
  REQUIRE(bus.error().find("file descriptors") != std::string::npos);
}

TEST_CASE("an endpoint in use is an error and not a crash") {
  auto first = *Bus::make_server("tcp://127.0.0.1:*", InsecureLoopback::allowed, {1000});
  const auto second = Bus::make_server(first->endpoint(), InsecureLoopback::allowed, {1000});
  REQUIRE_FALSE(second);
  REQUIRE(second.error().find("cannot listen on " + first->endpoint()) != std::string::npos);
}

const std::string kAnywhere = "tcp://127.0.0.1:*";

struct KeyedJob {
  TemporaryDirectory scratch;
  std::filesystem::path keys = scratch / "keys";
  std::unique_ptr<Bus> listener;

  KeyedJob() {
    REQUIRE(make_key_directory(keys));
    REQUIRE(add_client(keys, {"alice", Role::read}));
    listener = *Bus::make_server(kAnywhere, InsecureLoopback::refused, {1000}, *read_server_keys(keys));
  }
  std::unique_ptr<Bus> asker(std::optional<ClientKeys> with) const {
    auto bus = *Bus::make_client({1000}, std::move(with));
    REQUIRE(bus->connect(listener->endpoint()));
    return bus;
  }
  // The next message at the listener; none if the asker is refused. Polls both ends in turn, because the
  // listener checks keys while it polls.
  std::optional<Bus::Incoming> arrives(Bus& asker) const {
    std::optional<Bus::Incoming> incoming;
    eventually([&] {
      if (!incoming) incoming = listener->poll(milliseconds(1), -1);
      asker.poll(milliseconds(1), -1);
      return incoming.has_value() || !asker.refusal().empty() || !asker.hint().empty();
    });
    return incoming;
  }
};

ClientKeys alice_keys(const std::filesystem::path& keys) {
  std::filesystem::remove(keys / "operator.secret");
  return *read_operator_keys(keys);
}

TEST_CASE("a message carries the name and the role of its sender's key") {
  const KeyedJob job;
  const auto rank = job.asker(*read_rank_keys(job.keys));
  REQUIRE(rank->send("", "hello"));
  const auto first = job.arrives(*rank);
  REQUIRE(first);
  REQUIRE(first->bytes == "hello");
  REQUIRE(first->client == "ranks");
  REQUIRE(first->role == Role::control);
  REQUIRE(job.listener->send(first->peer, "welcome"));
  REQUIRE(rank->poll(kSoon, -1)->bytes == "welcome");
  const auto reader = job.asker(alice_keys(job.keys));
  REQUIRE(reader->send("", "hello"));
  const auto second = job.arrives(*reader);
  REQUIRE(second);
  REQUIRE(second->client == "alice");
  REQUIRE(second->role == Role::read);
}

TEST_CASE("a key that is not listed is refused and the client is told why") {
  const KeyedJob job;
  const TemporaryDirectory other;
  REQUIRE(make_key_directory(other / "keys"));
  auto unlisted_keys = *read_rank_keys(other / "keys");
  unlisted_keys.server_public = read_rank_keys(job.keys)->server_public;
  const std::string key = to_z85(unlisted_keys.secret.public_key());
  CHECK(job.listener->refusals().empty());
  const auto bus = job.asker(std::move(unlisted_keys));
  REQUIRE(bus->send("", "hello"));
  REQUIRE_FALSE(job.arrives(*bus));
  REQUIRE(bus->refusal() == "the job's clients.allow does not list this key");
  CHECK(job.listener->refusals().find("key not in clients.allow; last: " + key + " at 127.0.0.1") !=
        std::string::npos);
}

TEST_CASE("a client without keys is refused and told why") {
  const KeyedJob job;
  const auto bus = job.asker({});
  REQUIRE(bus->send("", "hello"));
  REQUIRE_FALSE(job.arrives(*bus));
  // Which of the two depends on whether the greeting or the end of the connection comes first.
  const bool mismatch = bus->refusal() == "only one side uses keys";
  const bool hung_up =
      bus->hint() ==
      "connection closed: the job requires keys; give them with GRADMON_KEYS=DIR or --keys DIR";
  REQUIRE((mismatch || hung_up));
}

TEST_CASE("a client sends nothing to a job with another key") {
  const KeyedJob job;
  const TemporaryDirectory other;
  REQUIRE(make_key_directory(other / "keys"));
  auto misled = *read_rank_keys(job.keys);
  misled.server_public = read_rank_keys(other / "keys")->server_public;
  const auto bus = job.asker(std::move(misled));
  REQUIRE(bus->send("", "secret"));
  REQUIRE_FALSE(job.arrives(*bus));
  REQUIRE(bus->hint() == "connection closed: the job has another key than server.public, or uses no keys");
  const auto honest = job.asker(*read_rank_keys(job.keys));
  REQUIRE(honest->send("", "honest"));
  REQUIRE(job.arrives(*honest)->bytes == "honest");
}

TEST_CASE("with keys a message up to the size limit arrives and a longer one does not") {
  const KeyedJob job;
  const auto greedy = job.asker(*read_rank_keys(job.keys));
  REQUIRE(greedy->send("", std::string(1000, 'x')));
  REQUIRE(job.arrives(*greedy)->bytes.size() == 1000);  // connected: its next one would arrive first
  REQUIRE(greedy->send("", std::string(1000 + 100, 'x')));
  const auto honest = job.asker(*read_rank_keys(job.keys));
  REQUIRE(honest->send("", "honest"));
  REQUIRE(job.arrives(*honest)->bytes == "honest");
  CHECK_FALSE(job.listener->poll(milliseconds(200), -1));
}

TEST_CASE("a changed allow-list takes effect and an invalid one changes nothing") {
  const KeyedJob job;
  AllowListFile file(job.keys);
  REQUIRE(file.look());
  REQUIRE_FALSE(file.look());
  const auto rank = job.asker(*read_rank_keys(job.keys));
  REQUIRE(rank->send("", "hello"));
  REQUIRE(job.arrives(*rank)->admitted);
  const auto list = job.keys / "clients.allow";
  const std::string all = read_text(list);
  const std::size_t ranks = all.find("ranks control");
  REQUIRE(ranks != all.npos);
  write_text(list, all.substr(0, ranks) + all.substr(all.find('\n', ranks) + 1));
  const auto without = file.look();
  REQUIRE(without);
  job.listener->allow_only(**without);
  REQUIRE(rank->send("", "still here"));
  const auto late = job.arrives(*rank);
  REQUIRE(late);
  CHECK_FALSE(late->admitted);
  const auto refused = job.asker(*read_rank_keys(job.keys));
  REQUIRE(refused->send("", "hello"));
  CHECK_FALSE(job.arrives(*refused));
  CHECK(refused->refusal() == "the job's clients.allow does not list this key");
  write_text(list, "nonsense\n");
  const auto wrong = file.look();
  REQUIRE(wrong);
  CHECK(wrong->error().find("clients.allow:1:") != std::string::npos);
  CHECK_FALSE(file.look());
}

TEST_CASE("a key that is replaced under its name loses its rights at once, also on an open connection") {
  const KeyedJob job;
  const auto list = job.keys / "clients.allow";
  const auto alice = job.asker(alice_keys(job.keys));
  REQUIRE(alice->send("", "hello"));
  REQUIRE(job.arrives(*alice)->client == "alice");
  const TemporaryDirectory other;
  REQUIRE(make_key_directory(other / "keys"));
  const std::string another = to_z85(read_rank_keys(other / "keys")->secret.public_key());
  std::string all = read_text(list);
  const std::size_t key = all.find("alice read ") + std::string("alice read ").size();
  all.replace(key, another.size(), another);
  job.listener->allow_only(*parse_allow_list(all, list.string()));
  REQUIRE(alice->send("", "still here"));
  const auto late = job.arrives(*alice);
  REQUIRE(late);
  CHECK_FALSE(late->admitted);
}

TEST_CASE("a bind for other hosts without keys is refused and the error names the remedy") {
  const auto refused = [](const std::string& endpoint, std::optional<ServerKeys> keys) {
    const auto bus = Bus::make_server(endpoint, InsecureLoopback::allowed, {1000}, std::move(keys));
    return bus ? "" : bus.error();
  };
  REQUIRE(refused("tcp://0.0.0.0:5555", {}) ==
          "refusing to listen on \"tcp://0.0.0.0:5555\" without keys: anybody in the network could command "
          "the job; \"gradmonctl keygen DIR\" makes keys, GRADMON_KEYS=DIR names them");
  const KeyedJob job;
  REQUIRE(
      Bus::make_server("tcp://0.0.0.0:*", InsecureLoopback::refused, {1000}, *read_server_keys(job.keys)));
}

TEST_CASE("a client without keys does not connect to another host") {
  auto bus = *Bus::make_client({1000});
  const auto connected = bus->connect("tcp://192.0.2.1:5555");
  REQUIRE_FALSE(connected);
  REQUIRE(connected.error() ==
          "cannot connect to \"tcp://192.0.2.1:5555\" without keys: GRADMON_KEYS=DIR names them");
}

}  // namespace
}  // namespace gradmon
