// SPDX-License-Identifier: Apache-2.0
#include "control/hub/transport/stream_server.h"

#include <poll.h>

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

#include "tests/control/host/socket_pair.h"
#include "tests/control/hub/transport/server_fixture.h"

using namespace gradmon;
using namespace std::chrono_literals;
namespace fs = std::filesystem;
using Closed = StreamServer::Closed;

TEST_CASE("each peer has a number of its own and gets the frames sent to that number") {
  ServerFixture hub;
  const auto a = hub.connect_admitted();
  const auto b = hub.connect_admitted();
  CHECK(hub.server->connections() == 2);
  CHECK(hub.frames.at(Peer{1}) == std::vector<std::string>{"hello"});
  CHECK(hub.server->send(Peer{1}, "to a"));
  CHECK(hub.server->send(Peer{2}, "to b"));
  CHECK(received(*a) == std::vector<std::string>{"to a"});
  CHECK(received(*b) == std::vector<std::string>{"to b"});
  CHECK_FALSE(hub.server->send(Peer{3}, "to nobody"));
  CHECK_FALSE(hub.server->send(Peer{}, "to nobody"));
}

TEST_CASE("a peer that closes is reported after its last frame and its number is not reused") {
  ServerFixture hub;
  auto a = hub.connect_admitted();
  REQUIRE(hub.server->send(Peer{1}, "unread"));
  REQUIRE(a->send("left"));
  a.reset();
  SECTION("read first") {}
  SECTION("written to first") { CHECK_FALSE(hub.server->send(Peer{1}, "late")); }
  hub.settle();
  CHECK(hub.frames.at(Peer{1}) == std::vector<std::string>{"hello", "left"});
  CHECK(hub.endings.at(Peer{1}).how == Closed::by_peer);
  CHECK(hub.server->connections() == 0);
  const auto b = hub.connect_admitted();
  CHECK(hub.newest() == Peer{2});
}

TEST_CASE("a peer that is cut sends and receives nothing more and is reported once") {
  ServerFixture hub;
  const auto a = hub.connect_admitted();
  hub.on_frame = [&](Peer peer) {
    hub.server->cut(peer, "enough");
    hub.server->cut(peer, "again");
  };
  REQUIRE(a->send("one"));
  REQUIRE(a->send("two"));
  hub.settle();
  CHECK(hub.frames.at(Peer{1}) == std::vector<std::string>{"hello", "one"});
  CHECK(hub.endings.at(Peer{1}).how == Closed::cut);
  CHECK(hub.endings.at(Peer{1}).reason == "enough");
  CHECK_FALSE(hub.server->send(Peer{1}, "x"));
  CHECK(ended(*a));
}

TEST_CASE("a cut between two calls of handle is reported by the next call without delay") {
  ServerFixture hub;
  const auto a = hub.connect_admitted();
  CHECK(hub.server->longest_wait(1h) == 1h);
  hub.server->cut(Peer{1}, "why not");
  CHECK(hub.server->longest_wait(1h) == 0ms);
  hub.server->handle({}, hub.callbacks);
  CHECK(hub.endings.at(Peer{1}).reason == "why not");
}

TEST_CASE("on_closed may cut other peers and send to them") {
  ServerFixture hub;
  auto a = hub.connect_admitted();
  const auto b = hub.connect_admitted();
  const auto c = hub.connect_admitted();
  const auto tell = hub.callbacks.on_closed;
  hub.callbacks.on_closed = [&](Peer peer, Closed how, const std::string& reason) {
    tell(peer, how, reason);
    hub.server->cut(Peer{2}, "with its friend");
    CHECK(hub.server->send(Peer{3}, "they have gone"));
  };
  a.reset();
  hub.settle();
  CHECK(hub.endings.at(Peer{2}).reason == "with its friend");
  CHECK(received(*c).size() == 2);
}

TEST_CASE("a removed path is made again and the peers stay connected") {
  ServerFixture hub;
  const auto a = hub.connect_admitted();
  CHECK(hub.server->rebind().value() == StreamServer::Rebound::kept);
  const Descriptor waiting = hub.connect();
  send_raw(waiting, framed("just in time"));
  fs::remove(hub.path());
  CHECK(hub.server->rebind().value() == StreamServer::Rebound::made);
  CHECK(hub.server->rebind().value() == StreamServer::Rebound::kept);
  const auto b = hub.connect_admitted();
  REQUIRE(a->send("still"));
  hub.settle();
  CHECK(hub.frames.at(Peer{1}).back() == "still");
  CHECK(hub.frames.at(Peer{2}).back() == "just in time");
  CHECK(hub.frames.at(Peer{3}).back() == "hello");
}

TEST_CASE("a path that is taken or whose directory is missing is an error and the peers stay") {
  ServerFixture hub;
  const auto a = hub.connect_admitted();
  fs::remove(hub.path());
  write_text(hub.path(), "another's");
  CHECK(hub.server->rebind().error() == hub.path().string() + ": Address already in use");
  CHECK(read_text(hub.path()) == "another's");
  fs::remove_all(hub.directory.path());
  CHECK(hub.server->rebind().error() == hub.path().string() + ": No such file or directory");
  REQUIRE(a->send("still"));
  hub.settle();
  CHECK(hub.frames.at(Peer{1}).back() == "still");
}

TEST_CASE("descriptors that are not the server's are ignored") {
  ServerFixture hub;
  const SocketPair other;
  send_raw(other.raw_socket, "something");
  hub.server->handle({{other.stream_socket.get(), POLLIN, POLLIN}, {-1, POLLIN, POLLNVAL}}, hub.callbacks);
  CHECK(hub.frames.empty());
}
