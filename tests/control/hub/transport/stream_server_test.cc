// SPDX-License-Identifier: Apache-2.0
// The limits of a StreamServer, for one peer and for all of them.
#include "control/hub/transport/stream_server.h"

#include <sys/wait.h>
#include <unistd.h>

#include "control/host/unix_stream.h"
#include "tests/control/host/socket_pair.h"
#include "tests/support/catch.h"
#include "tests/support/is_root.h"
#include "tests/support/resource_limit.h"
#include "tests/support/temporary_directory.h"

namespace gradmon {
namespace {

using Kind = UnixListener::Accepted::Kind;

Descriptor connected(const fs::path& path) {
  const auto socket = connect_unix(path);
  INFO((socket ? "" : socket.error()));
  REQUIRE(socket);
  return Descriptor(*socket);
}

bool ended(const Descriptor& client) {
  char byte = 0;
  return ::recv(client.get(), &byte, 1, MSG_DONTWAIT) == 0;
}

TEST_CASE("a listener binds with mode 0600 and accepts its own user and removes its path at its end") {
  const TemporaryDirectory directory;
  {
    auto listener = UnixListener::listen(directory / "hub.sock");
    REQUIRE(listener);
    CHECK(mode_of(directory / "hub.sock") == 0600);
    CHECK(listener->accept().kind == Kind::nobody);
    const Descriptor client = connected(directory / "hub.sock");
    CHECK(listener->accept().kind == Kind::peer);
    CHECK(listener->accept().kind == Kind::nobody);
  }
  CHECK_FALSE(fs::exists(directory / "hub.sock"));
}

TEST_CASE("an earlier hub's socket is replaced and any other file is kept and named in the error") {
  const TemporaryDirectory directory;
  const fs::path path = directory / "hub.sock";
  { const Descriptor left_behind(bind_unix(path).value()); }
  REQUIRE(fs::exists(path));
  { CHECK(UnixListener::listen(path)); }
  write_text(path, "a file");
  CHECK(UnixListener::listen(path).error() == path.string() + ": not a socket, expected one or nothing");
  CHECK(read_text(path) == "a file");
  fs::remove(path);
  fs::create_symlink("elsewhere", path);
  CHECK_FALSE(UnixListener::listen(path));
  CHECK(fs::is_symlink(path));
  fs::remove(path);
  CHECK(UnixListener::listen(directory / "missing" / "hub.sock").error() ==
        (directory / "missing" / "hub.sock").string() + ": No such file or directory");
  if (!is_root("make another user's socket")) return;
  { const Descriptor planted(bind_unix(path).value()); }
  REQUIRE(chown(path.c_str(), 12'345, 0) == 0);
  CHECK(UnixListener::listen(path).error() ==
        path.string() + ": belongs to uid 12345, expected uid 0, who runs this");
}

TEST_CASE("a listener does not remove a path that another hub has taken") {
  const TemporaryDirectory directory;
  const fs::path path = directory / "hub.sock";
  auto first = std::make_unique<UnixListener>(UnixListener::listen(path).value());
  CHECK(first->at_path());
  const auto second = UnixListener::listen(path);
  REQUIRE(second);
  CHECK_FALSE(first->at_path());
  CHECK_FALSE(first->bind_again());
  first.reset();
  CHECK(second->at_path());
  const Descriptor client = connected(path);
}

TEST_CASE("another user is refused even if the socket's mode admits everybody") {
  if (!is_root("become another user")) return;
  const TemporaryDirectory directory;
  const fs::path path = directory / "hub.sock";
  auto listener = UnixListener::listen(path);
  REQUIRE(listener);
  REQUIRE(chmod(directory.path().c_str(), 0755) == 0);
  REQUIRE(chmod(path.c_str(), 0666) == 0);
  const pid_t other = fork();
  if (other == 0) {
    if (setgid(65'534) != 0 || setuid(65'534) != 0) _exit(2);
    const auto socket = connect_unix(path);
    _exit(socket ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(other, &status, 0) == other);
  REQUIRE(status == 0);
  const auto accepted = listener->accept();
  CHECK(accepted.kind == Kind::refused);
  CHECK(accepted.reason == "uid 65534 is neither this user nor root");
}

TEST_CASE("without free descriptors a client is refused at once and later clients are accepted") {
  const TemporaryDirectory directory;
  const fs::path path = directory / "hub.sock";
  auto listener = UnixListener::listen(path);
  REQUIRE(listener);
  const Descriptor before = connected(path);
  const Descriptor also_before = connected(path);
  UnixListener::Accepted first;
  UnixListener::Accepted second;
  {
    // Under a limit of 3 even the number of the spare descriptor is too high.
    const DescriptorLimit limit(3);
    first = listener->accept();
    second = listener->accept();
  }
  CHECK(first.kind == Kind::stuck);
  CHECK(second.kind == Kind::stuck);
  CHECK(first.reason == "no descriptor is left: Too many open files");
  CHECK(listener->accept().kind == Kind::peer);
  CHECK(listener->accept().kind == Kind::peer);
  CHECK(listener->accept().kind == Kind::nobody);

  // If all numbers below the limit are in use, the number of the spare descriptor can be used.
  const Descriptor third = connected(path);
  UnixListener::Accepted turned_away;
  UnixListener::Accepted nobody;
  {
    const DescriptorLimit few(64);
    std::vector<Descriptor> taken;
    for (int fd = dup(0); fd >= 0; fd = dup(0)) taken.emplace_back(fd);
    turned_away = listener->accept();
    nobody = listener->accept();
  }
  CHECK(turned_away.kind == Kind::refused);
  CHECK(nobody.kind == Kind::nobody);
  CHECK(ended(third));
  const Descriptor fourth = connected(path);
  CHECK(listener->accept().kind == Kind::peer);
}

using namespace std::chrono_literals;
using Closed = StreamServer::Closed;

struct Ending {
  Closed how;
  std::string reason;
};

constexpr std::chrono::milliseconds kMoment{1};

// A server with a clock that the test moves, and all that its callbacks were called with.
class ServerFixture {
 public:
  explicit ServerFixture(const StreamServer::Limits& limits = {}) {
    auto listening = StreamServer::listen(path(), limits, [this] { return now; });
    INFO((listening ? "" : listening.error()));
    REQUIRE(listening);
    server = std::move(*listening);
    callbacks.on_frame = [this](Peer peer, std::string&& frame) {
      frames[peer].push_back(std::move(frame));
      if (on_frame) on_frame(peer);
    };
    callbacks.on_closed = [this](Peer peer, Closed how, const std::string& reason) {
      REQUIRE(endings.emplace(peer, Ending{how, reason}).second);
    };
  }

  std::filesystem::path path() const { return directory / "hub.sock"; }

  // Runs the hub's poll loop until it finds nothing to do.
  void settle() {
    for (int quiet = 0; quiet < 2;) {
      std::vector<pollfd> fds;
      server->add_to(fds);
      quiet =
          ::poll(fds.data(), fds.size(), 0) == 0 && server->longest_wait(kMoment) == kMoment ? quiet + 1 : 0;
      server->handle(fds, callbacks);
    }
  }

  Descriptor connect() const { return connected(path()); }

  // Connects a peer that sends "hello", and admits it, as the hub admits a rank. Its number is newest().
  std::unique_ptr<FrameStream> connect_admitted() {
    auto stream = std::make_unique<FrameStream>(connect().release(), StreamServer::Limits{}.stream);
    REQUIRE(stream->send("hello"));
    settle();
    server->admit(newest(), 100'000);
    return stream;
  }

  Peer newest() const { return frames.empty() ? Peer{} : frames.rbegin()->first; }

  const TemporaryDirectory directory;
  StreamServer::Clock::time_point now{std::chrono::seconds(1'000)};
  std::unique_ptr<StreamServer> server;
  StreamServer::Callbacks callbacks;
  std::function<void(Peer)> on_frame;
  std::map<Peer, std::vector<std::string>> frames;
  std::map<Peer, Ending> endings;
};

std::vector<std::string> received(FrameStream& stream) {
  std::vector<std::string> frames;
  while (true) {
    const std::size_t before = frames.size();
    const auto read = stream.read([&](std::string&& frame) { frames.push_back(std::move(frame)); });
    if (read.state != FrameStream::Read::State::open || frames.size() == before) return frames;
  }
}

bool ended(FrameStream& stream) {
  return stream.read([](std::string&&) {}).state == FrameStream::Read::State::end_of_file;
}

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

TEST_CASE("a peer that breaks the framing is cut with the reason and others are not affected") {
  ServerFixture hub;
  const auto good = hub.connect_admitted();
  const Descriptor empty = hub.connect();
  const Descriptor endless = hub.connect();
  send_raw(empty, header_of(0));
  send_raw(endless, framed("first") + header_of(0xffffffff) + "and so on");
  hub.settle();
  CHECK(hub.endings.at(Peer{2}).how == Closed::cut);
  CHECK(hub.endings.at(Peer{2}).reason == "received an empty frame");
  CHECK(hub.frames.at(Peer{3}) == std::vector<std::string>{"first"});
  CHECK(hub.endings.at(Peer{3}).reason == "frame of 4294967295 bytes exceeds the limit of 2162688");
  REQUIRE(good->send("fine"));
  hub.settle();
  CHECK(hub.frames.at(Peer{1}).back() == "fine");
  CHECK(hub.endings.size() == 2);
}

TEST_CASE("an admitted peer is cut if its frame is longer than admit allowed") {
  ServerFixture hub;
  const auto a = hub.connect_admitted();  // admitted with 100,000
  REQUIRE(a->send(std::string(100'000, 'x')));
  hub.settle();
  CHECK(hub.frames.at(Peer{1}).back().size() == 100'000);
  REQUIRE(a->send(std::string(100'001, 'x')));
  hub.settle();
  CHECK(hub.endings.at(Peer{1}).reason == "frame of 100001 bytes exceeds the limit of 100000");
}

TEST_CASE("a peer that never reads is cut at the limit and a slow reader gets every frame") {
  StreamServer::Limits limits;
  limits.stream.max_queued_bytes = 1'000'000;
  ServerFixture hub(limits);
  const auto non_reader = hub.connect_admitted();
  const auto slow = hub.connect_admitted();
  std::vector<std::string> sent;
  std::size_t got = 0;
  bool cut = false;
  for (int i = 0; i < 3'000; ++i) {
    sent.push_back(std::to_string(i) + std::string(1'000, '.'));
    REQUIRE(hub.server->send(Peer{2}, sent.back()));
    cut = !hub.server->send(Peer{1}, sent.back());
    hub.settle();
    if (i % 100 == 0) got += received(*slow).size();
    if (i < 900) REQUIRE_FALSE(cut);
  }
  while (got < sent.size()) {
    const std::size_t more = received(*slow).size();
    REQUIRE(more > 0);
    got += more;
    hub.settle();
  }
  CHECK(hub.endings.size() == 1);
  CHECK(hub.endings.at(Peer{1}).how == Closed::cut);
  CHECK(hub.endings.at(Peer{1}).reason == "reads too slowly: more than 1000000 bytes wait for it");
}

TEST_CASE("a rank that exceeds its rate is cut and a rank within its rate is not even after a pause") {
  StreamServer::Limits limits;
  limits.rank = {10, 30};
  ServerFixture hub(limits);
  const auto flood = hub.connect_admitted();
  const auto good = hub.connect_admitted();
  for (int second = 0; second < 60; ++second) {
    hub.now += 1s;
    for (int i = 0; i < 10; ++i) REQUIRE(good->send("x"));
    hub.settle();
  }
  hub.now += 1h;
  for (int i = 0; i < 30; ++i) REQUIRE(good->send("x"));
  for (int i = 0; i < 40; ++i) static_cast<void>(flood->send("x"));
  hub.settle();
  CHECK(hub.endings.size() == 1);
  CHECK(hub.endings.at(Peer{1}).reason == "more than 10 frames a second");
  CHECK(hub.frames.at(Peer{1}).size() == 31);
  CHECK(hub.frames.at(Peer{2}).size() == 631);
}

TEST_CASE("a client that sends no whole frame in time is cut") {
  ServerFixture hub;
  const Descriptor silent = hub.connect();
  const Descriptor half = hub.connect();
  send_raw(half, framed("hello").substr(0, 7));
  const auto good = hub.connect_admitted();
  CHECK(hub.server->connections() == 3);
  CHECK(hub.server->longest_wait(1h) == 5s);
  hub.now += 4'999ms;
  hub.settle();
  CHECK(hub.endings.empty());
  CHECK(hub.server->longest_wait(1h) == 1ms);
  hub.now += 1ms;
  CHECK(hub.server->longest_wait(1h) == 0ms);
  hub.settle();
  CHECK(hub.endings.size() == 2);
  CHECK(hub.endings.at(Peer{1}).reason == "sent no frame within 5000 ms");
  hub.now += 1h;
  REQUIRE(good->send("x"));
  hub.settle();
  CHECK(hub.frames.at(Peer{3}).size() == 2);
}

TEST_CASE("a client that sent a frame while the hub was paused is not cut") {
  ServerFixture hub;
  const Descriptor client = hub.connect();
  hub.settle();
  hub.on_frame = [&](Peer peer) { hub.server->admit(peer, 1'000); };
  send_raw(client, framed("hello"));
  hub.now += 1min;
  hub.settle();
  CHECK(hub.frames.at(Peer{1}) == std::vector<std::string>{"hello"});
  CHECK(hub.endings.empty());
}

TEST_CASE("silent clients do not keep out clients that send") {
  ServerFixture hub;
  hub.on_frame = [&](Peer peer) { hub.server->admit(peer, 1'000); };
  std::vector<Descriptor> other_clients;
  std::vector<Descriptor> speakers;
  for (int i = 0; i < 200; ++i) {
    for (int j = 0; j < 10; ++j) other_clients.push_back(hub.connect());
    speakers.push_back(hub.connect());
    send_raw(speakers.back(), framed("hello"));
    if (i % 10 == 0) hub.settle();
    hub.now += 10ms;
  }
  for (int i = 0; i < 100; ++i) {
    hub.now += 10ms;
    hub.settle();
  }
  CHECK(hub.frames.size() == 200);
  CHECK(hub.server->connections() <= 200 + StreamServer::Limits{}.most_unidentified);
  CHECK(hub.endings.begin()->second.reason ==
        "sent no frame before the limit of 128 connections was reached");
}

TEST_CASE("a client that exceeds its rate has to wait but gets every answer") {
  StreamServer::Limits limits;
  limits.client = {10, 30};
  ServerFixture hub(limits);
  hub.on_frame = [&](Peer peer) { CHECK(hub.server->send(peer, "answer")); };
  FrameStream client(hub.connect().release(), {1'000, 100'000});
  for (int i = 0; i < 100; ++i) REQUIRE(client.send("question"));
  hub.settle();
  CHECK(received(client).size() == 30);
  CHECK(hub.server->longest_wait(1h) == 100ms);
  hub.now += 1s;
  hub.settle();
  CHECK(received(client).size() == 10);
  hub.now += 2s;
  hub.settle();
  hub.now += 3s;
  hub.settle();
  hub.now += 3s;
  hub.settle();
  CHECK(received(client).size() == 60);
  CHECK(hub.endings.empty());
}

TEST_CASE("no more frames are taken from a client that does not read and it is cut") {
  ServerFixture hub;
  hub.on_frame = [&](Peer peer) { CHECK(hub.server->send(peer, std::string(1'000'000, 'x'))); };
  FrameStream non_reader(hub.connect().release(), {1'000, 100'000});
  for (int i = 0; i < 10; ++i) REQUIRE(non_reader.send("question"));
  hub.settle();
  CHECK(hub.frames.at(Peer{1}).size() == 1);
  CHECK(hub.server->longest_wait(1h) == 3s);
  hub.now += 3s;
  hub.settle();
  CHECK(hub.endings.at(Peer{1}).reason == "has not read its answer within 3000 ms");
}

TEST_CASE("clients that never read their answers do not keep others out") {
  const DescriptorLimit descriptors(2'200);
  if (!descriptors.is_set()) {
    WARN("skipped: needs 2,200 descriptors");
    return;
  }
  ServerFixture hub;
  hub.on_frame = [&](Peer peer) { static_cast<void>(hub.server->send(peer, std::string(10'000, 'x'))); };
  std::vector<Descriptor> other_clients;
  std::string many;
  for (int i = 0; i < 100; ++i) many += framed("question");
  for (int i = 0; i < 1'000; ++i) {
    other_clients.push_back(hub.connect());
    send_raw(other_clients.back(), many);
  }
  FrameStream good(hub.connect().release(), {100'000, 100'000});
  REQUIRE(good.send("question"));
  hub.settle();
  CHECK(received(good).size() == 1);
  const StreamServer::Limits limits;
  CHECK(hub.server->connections() <= limits.most_clients + limits.most_unidentified);
}

TEST_CASE("only a few clients at a time may be sending long frames") {
  StreamServer::Limits limits;
  limits.most_long_frames = 2;
  ServerFixture hub(limits);
  std::vector<Descriptor> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(hub.connect());
    send_raw(clients.back(), header_of(100'000) + "x");
  }
  const Descriptor good = hub.connect();
  send_raw(good, framed("question"));
  hub.settle();
  CHECK(hub.endings.size() == 1);
  CHECK(hub.endings.at(Peer{1}).reason == "too many clients are sending long frames");
  CHECK(hub.frames.count(Peer{4}) == 1);
  send_raw(clients[1], std::string(99'999, 'x'));
  hub.settle();
  CHECK(hub.frames.count(Peer{2}) == 1);
}

TEST_CASE("a new client displaces one that does not read or else the one with the most turns") {
  StreamServer::Limits limits;
  limits.most_clients = 3;
  ServerFixture hub(limits);
  std::size_t answer = 10;
  hub.on_frame = [&](Peer peer) { CHECK(hub.server->send(peer, std::string(answer, 'x'))); };
  std::vector<std::unique_ptr<FrameStream>> clients;
  const auto ask = [&](FrameStream& client) {
    REQUIRE(client.send("question"));
    hub.settle();
  };
  const auto newcomer = [&] {
    clients.push_back(std::make_unique<FrameStream>(hub.connect().release(), limits.stream));
    ask(*clients.back());
  };
  for (int i = 0; i < 3; ++i) newcomer();
  ask(*clients[1]);
  answer = 1'000'000;
  ask(*clients[2]);
  answer = 10;
  CHECK(hub.endings.empty());
  newcomer();
  CHECK(hub.endings.size() == 1);
  CHECK(hub.endings.count(Peer{3}) == 1);
  newcomer();
  CHECK(hub.endings.size() == 2);
  CHECK(hub.endings.count(Peer{2}) == 1);
  ask(*clients[0]);
  CHECK(received(*clients[0]).size() == 2);
}

TEST_CASE("clients are served in turn until the time slice is used up") {
  ServerFixture hub;
  hub.on_frame = [&](Peer peer) {
    if (peer != Peer{1}) hub.now += 4ms;
  };
  const auto rank = hub.connect_admitted();
  std::vector<Descriptor> clients;
  for (int i = 0; i < 5; ++i) clients.push_back(hub.connect());
  hub.settle();
  for (const Descriptor& client : clients) send_raw(client, framed("a") + framed("b"));
  std::vector<std::size_t> served;
  for (int round = 0; round < 5; ++round) {
    REQUIRE(rank->send("x"));
    std::vector<pollfd> fds;
    hub.server->add_to(fds);
    ::poll(fds.data(), fds.size(), 0);
    hub.server->handle(fds, hub.callbacks);
    served.clear();
    for (std::uint64_t peer = 2; peer <= 6; ++peer) served.push_back(hub.frames[Peer{peer}].size());
    if (round == 0) CHECK(served == std::vector<std::size_t>{1, 1, 1, 0, 0});
    if (round == 1) CHECK(served == std::vector<std::size_t>{2, 1, 1, 1, 1});
  }
  CHECK(served == std::vector<std::size_t>{2, 2, 2, 2, 2});
  CHECK(hub.frames.at(Peer{1}).size() == 6);  // in every round
}

TEST_CASE("connections over the limit are closed at once and counted") {
  StreamServer::Limits limits;
  limits.most_connections = 3;
  ServerFixture hub(limits);
  std::vector<std::unique_ptr<FrameStream>> clients;
  for (int i = 0; i < 3; ++i) clients.push_back(hub.connect_admitted());
  FrameStream fourth(hub.connect().release(), limits.stream);
  hub.settle();
  CHECK(ended(fourth));
  CHECK(hub.server->refused().count == 1);
  CHECK(hub.server->refused().last_reason == "there are 3 connections, and no more are taken");
  CHECK(hub.server->connections() == 3);
  clients.pop_back();
  hub.settle();
  clients.push_back(hub.connect_admitted());
  CHECK(hub.server->send(hub.newest(), "welcome"));
}

TEST_CASE("without free descriptors peers are served and the server does not spin") {
  ServerFixture hub;
  const auto good = hub.connect_admitted();
  const Descriptor first = hub.connect();
  const Descriptor second = hub.connect();
  bool sent = false;
  std::vector<pollfd> fds;
  std::chrono::milliseconds wait{};
  {
    const DescriptorLimit none(3);
    sent = good->send("still");
    hub.server->add_to(fds);
    for (pollfd& one : fds) one.revents = POLLIN;  // poll(2) refuses more entries than the limit
    hub.server->handle(fds, hub.callbacks);
    fds.clear();
    hub.server->add_to(fds);
    wait = hub.server->longest_wait(1h);
  }
  REQUIRE(sent);
  CHECK(hub.frames.at(Peer{1}).back() == "still");
  CHECK(fds.size() == 1);
  CHECK(wait == 100ms);
  CHECK(hub.server->refused().last_reason == "no descriptor is left: Too many open files");
  hub.now += 100ms;
  hub.settle();
  CHECK(hub.server->connections() == 3);
}

}  // namespace
}  // namespace gradmon
