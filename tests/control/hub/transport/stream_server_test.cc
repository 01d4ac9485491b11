// SPDX-License-Identifier: Apache-2.0
#include "control/hub/transport/stream_server.h"

#include <poll.h>

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

#include "tests/control/host/socket_pair.h"
#include "tests/control/hub/transport/served.h"

using namespace gradmon;
using namespace std::chrono_literals;
namespace fs = std::filesystem;
using Closed = StreamServer::Closed;

TEST_CASE("each peer has a number of its own, is heard and is answered") {
  Served hub;
  const auto a = hub.client();
  const auto b = hub.client();
  CHECK(hub.server->connections() == 2);
  CHECK(hub.frames.at(Peer{1}) == std::vector<std::string>{"hello"});
  CHECK(hub.server->send(Peer{1}, "to a"));
  CHECK(hub.server->send(Peer{2}, "to b"));
  CHECK(received(*a) == std::vector<std::string>{"to a"});
  CHECK(received(*b) == std::vector<std::string>{"to b"});
  CHECK_FALSE(hub.server->send(Peer{3}, "to nobody"));
  CHECK_FALSE(hub.server->send(Peer{}, "to nobody"));
}

TEST_CASE("a peer that goes is reported after its last frame, and its number does not come back") {
  Served hub;
  auto a = hub.client();
  REQUIRE(hub.server->send(Peer{1}, "unread"));
  REQUIRE(a->send("left"));
  a.reset();
  SECTION("read first") {}
  SECTION("written to first") { CHECK_FALSE(hub.server->send(Peer{1}, "late")); }
  hub.settle();
  CHECK(hub.frames.at(Peer{1}) == std::vector<std::string>{"hello", "left"});
  CHECK(hub.endings.at(Peer{1}).how == Closed::by_peer);
  CHECK(hub.server->connections() == 0);
  const auto b = hub.client();
  CHECK(hub.newest() == Peer{2});
}

TEST_CASE("a peer that is cut hears no more, is heard no more, and is reported once") {
  Served hub;
  const auto a = hub.client();
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

TEST_CASE("a cut from outside is reported by the next handle, which is not to be waited for") {
  Served hub;
  const auto a = hub.client();
  CHECK(hub.server->longest_wait(1h) == 1h);
  hub.server->cut(Peer{1}, "why not");
  CHECK(hub.server->longest_wait(1h) == 0ms);
  hub.server->handle({}, hub.callbacks);
  CHECK(hub.endings.at(Peer{1}).reason == "why not");
}

TEST_CASE("peers may be cut and sent to while another one's end is told") {
  Served hub;
  auto a = hub.client();
  const auto b = hub.client();
  const auto c = hub.client();
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

TEST_CASE("a path that has vanished is made anew, and peers stay") {
  Served hub;
  const auto a = hub.client();
  CHECK(hub.server->rebind().value() == StreamServer::Rebound::kept);
  const Descriptor waiting = hub.connect();
  put(waiting, framed("just in time"));
  fs::remove(hub.path());
  CHECK(hub.server->rebind().value() == StreamServer::Rebound::made);
  CHECK(hub.server->rebind().value() == StreamServer::Rebound::kept);
  const auto b = hub.client();
  REQUIRE(a->send("still"));
  hub.settle();
  CHECK(hub.frames.at(Peer{1}).back() == "still");
  CHECK(hub.frames.at(Peer{2}).back() == "just in time");
  CHECK(hub.frames.at(Peer{3}).back() == "hello");
}

TEST_CASE("a path that another one has taken is left to it, and so is a missing directory") {
  Served hub;
  const auto a = hub.client();
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

TEST_CASE("descriptors that are not the server's are passed over") {
  Served hub;
  const SocketPair other;
  put(other.bare, "something");
  hub.server->handle({{other.ours.get(), POLLIN, POLLIN}, {-1, POLLIN, POLLNVAL}}, hub.callbacks);
  CHECK(hub.frames.empty());
}
