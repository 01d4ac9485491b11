// SPDX-License-Identifier: Apache-2.0
#include "control/host/unix_stream.h"

#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <vector>

#include "control/files/descriptor.h"
#include "tests/control/host/socket_pair.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"

namespace gradmon {
namespace {

using State = FrameStream::Read::State;

constexpr FrameStream::Limits kLimits{std::size_t{2} << 20U, std::size_t{3} << 20U};

struct Received {
  std::vector<std::string> frames;
  FrameStream::Read last;
};

// Reads like a poll loop until no bytes are left or the stream ends.
Received receive(FrameStream& stream) {
  Received got;
  pollfd waited{stream.fd(), POLLIN, 0};
  while (got.last.state == State::open && ::poll(&waited, 1, 0) > 0)
    got.last = stream.read([&](std::string&& frame) { got.frames.push_back(std::move(frame)); });
  return got;
}

TEST_CASE("frames arrive whole and in order, whatever bytes they hold") {
  SocketPair pair;
  FrameStream a(pair.stream_socket.release(), kLimits);
  FrameStream b(pair.raw_socket.release(), kLimits);
  const std::vector<std::string> sent{"x", std::string(4, '\0'), framed("within"),
                                      std::string(70'000, '\xff')};
  for (const std::string& frame : sent) CHECK(a.send(frame));
  CHECK_FALSE(a.wants_write());
  CHECK(receive(b).frames == sent);
  CHECK(b.send("back"));
  CHECK(receive(a).frames == std::vector<std::string>{"back"});
}

TEST_CASE("a frame that arrives byte by byte is delivered once and with its last byte") {
  SocketPair pair;
  FrameStream stream(pair.stream_socket.release(), kLimits);
  const std::string bytes = framed("hello") + framed("you");
  std::vector<std::string> frames;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    REQUIRE(send_raw(pair.raw_socket, bytes.substr(i, 1)) == 1);
    const Received got = receive(stream);
    CHECK(got.last.state == State::open);
    frames.insert(frames.end(), got.frames.begin(), got.frames.end());
    CHECK(frames.size() == (i + 1 == bytes.size() ? 2U : i >= 8 ? 1U : 0U));
  }
  CHECK(frames == std::vector<std::string>{"hello", "you"});
}

TEST_CASE("10000 frames arrive in order and one read delivers only a limited number") {
  SocketPair pair;
  FrameStream stream(pair.stream_socket.release(), kLimits);
  std::string bytes;
  for (int i = 0; i < 10'000; ++i) bytes += framed(std::to_string(i));
  int expected = 0;
  int most_in_a_call = 0;
  for (std::size_t written = 0; expected < 10'000;) {
    written += send_raw(pair.raw_socket, std::string_view(bytes).substr(written));
    const int before = expected;
    const auto read = stream.read([&](std::string&& frame) {
      if (frame == std::to_string(expected)) ++expected;
    });
    REQUIRE(read.state == State::open);
    REQUIRE(expected > before);
    most_in_a_call = std::max(most_in_a_call, expected - before);
  }
  CHECK(most_in_a_call <= 1'019);
}

TEST_CASE("the longest frame passes in pieces, and one byte more breaks the stream") {
  SocketPair pair;
  FrameStream stream(pair.stream_socket.release(), kLimits);
  std::string bytes = framed(std::string(kLimits.max_frame_bytes, 'x'));
  std::vector<std::string> frames;
  for (std::size_t written = 0; frames.empty();) {
    written += send_raw(pair.raw_socket, std::string_view(bytes).substr(written));
    frames = receive(stream).frames;
  }
  CHECK(frames[0].size() == kLimits.max_frame_bytes);

  send_raw(pair.raw_socket, framed("last") + header_of(kLimits.max_frame_bytes + 1));
  const Received got = receive(stream);
  CHECK(got.frames == std::vector<std::string>{"last"});
  CHECK(got.last.state == State::broken);
  CHECK(got.last.reason == "frame of 2097153 bytes exceeds the limit of 2097152");
  send_raw(pair.raw_socket, framed("after"));
  CHECK(stream.read([](std::string&&) { FAIL("a frame out of a broken stream"); }).state == State::broken);
}

TEST_CASE("lengths of 0 and of 0xffffffff break the stream") {
  for (const std::size_t length : {std::size_t{0}, std::size_t{0xffffffff}}) {
    SocketPair pair;
    FrameStream stream(pair.stream_socket.release(), kLimits);
    send_raw(pair.raw_socket, header_of(length) + "abc");
    const Received got = receive(stream);
    CHECK(got.frames.empty());
    CHECK(got.last.state == State::broken);
    CHECK(got.last.reason.find(length == 0 ? "empty" : "4294967295") != std::string::npos);
  }
}

TEST_CASE("an announced length takes no memory before its bytes come") {
  constexpr std::size_t most = std::size_t{64} << 20U;
  std::vector<FrameStream::Limits> limits(100, {most, most});
  std::vector<SocketPair> pairs(100);
  std::vector<std::unique_ptr<FrameStream>> streams;
  const auto used = [] { return mallinfo2().uordblks + mallinfo2().hblkhd; };
  const std::size_t before = used();
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    streams.push_back(std::make_unique<FrameStream>(pairs[i].stream_socket.release(), limits[i]));
    send_raw(pairs[i].raw_socket, header_of(most) + std::string(1'000, 'x'));
    CHECK(receive(*streams.back()).last.state == State::open);
  }
  CHECK(used() - before < 100 * 8'192);
}

TEST_CASE("the queue of unread frames is bounded and no part of a refused frame is sent") {
  SocketPair pair;
  FrameStream a(pair.stream_socket.release(), {1'000, 100'000});
  FrameStream b(pair.raw_socket.release(), {1'000, 100'000});
  std::vector<std::string> accepted;
  for (int i = 0; accepted.empty() || i < 100'000; ++i) {
    const std::string frame = std::to_string(i) + std::string(500, '.');
    if (!a.send(frame)) break;
    accepted.push_back(frame);
  }
  CHECK(a.wants_write());
  CHECK(accepted.size() < 10'000);
  CHECK_FALSE(a.send(std::string(990, 'x')));

  std::vector<std::string> got;
  while (got.size() < accepted.size()) {
    const Received more = receive(b);
    REQUIRE(more.last.state == State::open);
    got.insert(got.end(), more.frames.begin(), more.frames.end());
    a.flush();
  }
  CHECK(got == accepted);
  CHECK_FALSE(a.wants_write());
  CHECK(a.send("again"));
  CHECK(receive(b).frames == std::vector<std::string>{"again"});
}

TEST_CASE("empty frames and frames over the limit of the queue are never sent") {
  SocketPair pair;
  FrameStream stream(pair.stream_socket.release(), {100, 104});
  CHECK_FALSE(stream.send(""));
  CHECK_FALSE(stream.send(std::string(101, 'x')));
  CHECK(stream.send(std::string(100, 'x')));
}

TEST_CASE("frames that a peer sent before it closed arrive before the end of file") {
  SocketPair pair;
  FrameStream stream(pair.stream_socket.release(), kLimits);
  REQUIRE(stream.send("never read"));  // recv() then fails with ECONNRESET
  send_raw(pair.raw_socket, framed("left"));
  pair.raw_socket.reset();
  SECTION("read first") {}
  SECTION("written to first") {
    CHECK_FALSE(stream.send("to nobody"));
    CHECK_FALSE(stream.wants_write());
  }
  const Received got = receive(stream);
  CHECK(got.frames == std::vector<std::string>{"left"});
  CHECK(got.last.state == State::end_of_file);
  CHECK(got.last.reason == "the peer closed the connection");
  CHECK_FALSE(stream.send("still to nobody"));
}

TEST_CASE("an end of file within a frame is reported as such") {
  SocketPair pair;
  FrameStream stream(pair.stream_socket.release(), kLimits);
  send_raw(pair.raw_socket, framed("half").substr(0, 6));
  pair.raw_socket.reset();
  const Received got = receive(stream);
  CHECK(got.frames.empty());
  CHECK(got.last.state == State::end_of_file);
  CHECK(got.last.reason == "the peer closed the connection within a frame");
}

TEST_CASE("a stream that on_frame closes delivers no more frames") {
  SocketPair pair;
  FrameStream stream(pair.stream_socket.release(), kLimits);
  send_raw(pair.raw_socket, framed("one") + framed("two"));
  int frames = 0;
  const auto read = stream.read([&](std::string&&) {
    ++frames;
    stream.close();
  });
  CHECK(frames == 1);
  CHECK(read.state == State::broken);
  CHECK(stream.fd() == -1);
  CHECK_FALSE(stream.send("x"));
}

TEST_CASE("a forked child that closes its copy leaves its parent connected and exec closes the socket") {
  SocketPair pair;
  FrameStream stream(pair.stream_socket.release(), kLimits);
  CHECK((fcntl(stream.fd(), F_GETFD) & FD_CLOEXEC) != 0);
  const pid_t child = fork();
  if (child == 0) {
    stream.close();
    _exit(0);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  send_raw(pair.raw_socket, framed("still here"));
  CHECK(receive(stream).frames == std::vector<std::string>{"still here"});
}

Descriptor listening(const std::filesystem::path& path, int backlog = 8) {
  const auto bound = bind_unix(path);
  INFO((bound ? "" : bound.error()));
  REQUIRE(bound);
  Descriptor socket(*bound);
  REQUIRE(::listen(socket.get(), backlog) == 0);
  return socket;
}

TEST_CASE("a bound socket has mode 0600 whatever the umask") {
  const TemporaryDirectory directory;
  for (const mode_t mask : {0000U, 0022U, 0277U, 0777U}) {
    const auto path = directory / ("socket-" + std::to_string(mask));
    const mode_t before = umask(mask);
    const auto bound = bind_unix(path);
    umask(before);
    REQUIRE(bound);
    const Descriptor owned(*bound);
    CHECK(mode_of(path) == 0600);
  }
}

TEST_CASE("a connection is non-blocking and close-on-exec and gives the peer's user id") {
  const TemporaryDirectory directory;
  const Descriptor server = listening(directory / "socket");
  const auto connected = connect_unix(directory / "socket");
  REQUIRE(connected);
  const Descriptor client(*connected);
  const Descriptor accepted(accept(server.get(), nullptr, nullptr));
  CHECK((fcntl(client.get(), F_GETFL) & O_NONBLOCK) != 0);
  CHECK((fcntl(client.get(), F_GETFD) & FD_CLOEXEC) != 0);
  CHECK(peer_uid(accepted.get()).value() == geteuid());
  CHECK(peer_uid(client.get()).value() == geteuid());
  CHECK_FALSE(peer_uid(-1));
}

TEST_CASE("a path longer than a socket address can be bound and connected to") {
  const TemporaryDirectory directory;
  const auto deep = directory / std::string(200, 'd');
  std::filesystem::create_directory(deep);
  const Descriptor server = listening(deep / "socket");
  CHECK(mode_of(deep / "socket") == 0600);
  const auto connected = connect_unix(deep / "socket");
  REQUIRE(connected);
  const Descriptor client(*connected);
  CHECK(Descriptor(accept(server.get(), nullptr, nullptr)).valid());

  const auto too_long = connect_unix(deep / std::string(100, 's'));
  REQUIRE_FALSE(too_long);
  CHECK(too_long.error().find("file name has 100 bytes; at most about 80 fit") != std::string::npos);
}

TEST_CASE("a path of exactly 107 bytes can be bound and connected to") {
  const TemporaryDirectory directory;
  const std::string name(107 - directory.path().string().size() - 1, 's');
  const Descriptor server = listening(directory / name);
  const auto connected = connect_unix(directory / name);
  REQUIRE(connected);
  const Descriptor client(*connected);
}

TEST_CASE("a failed connect or bind names the path and the cause") {
  const TemporaryDirectory directory;
  const auto missing = connect_unix(directory / "socket");
  REQUIRE_FALSE(missing);
  CHECK(missing.error() == (directory / "socket").string() + ": No such file or directory");
  { const Descriptor gone = listening(directory / "socket"); }
  const auto refused = connect_unix(directory / "socket");
  REQUIRE_FALSE(refused);
  CHECK(refused.error() == (directory / "socket").string() + ": Connection refused");
  const auto taken = bind_unix(directory / "socket");
  REQUIRE_FALSE(taken);
  CHECK(taken.error() == (directory / "socket").string() + ": Address already in use");
  CHECK_FALSE(connect_unix(""));
}

TEST_CASE("connecting to a server that does not accept never waits") {
  const TemporaryDirectory directory;
  const Descriptor server = listening(directory / "socket", 1);
  std::vector<Descriptor> clients;
  for (int i = 0; i < 10; ++i) {
    const auto connected = connect_unix(directory / "socket");
    if (!connected) {
      CHECK(connected.error().find("the listen queue is full") != std::string::npos);
      return;
    }
    clients.emplace_back(*connected);
  }
  FAIL("ten connections fit into a queue of one");
}

}  // namespace

}  // namespace gradmon
