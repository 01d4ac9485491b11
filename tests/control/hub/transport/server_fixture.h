// SPDX-License-Identifier: Apache-2.0
// A StreamServer in a directory of its own, and connections to it.
#pragma once

#include <poll.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

#include "control/host/unix_socket.h"
#include "control/hub/transport/stream_server.h"
#include "tests/support/temporary_directory.h"

namespace gradmon {

struct Ending {
  StreamServer::Closed how;
  std::string reason;
};

inline constexpr std::chrono::milliseconds kMoment{1};

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
    callbacks.on_closed = [this](Peer peer, StreamServer::Closed how, const std::string& reason) {
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

  Descriptor connect() const {
    const auto socket = connect_unix(path());
    INFO((socket ? "" : socket.error()));
    REQUIRE(socket);
    return Descriptor(*socket);
  }

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

inline std::vector<std::string> received(FrameStream& stream) {
  std::vector<std::string> frames;
  while (true) {
    const std::size_t before = frames.size();
    const auto read = stream.read([&](std::string&& frame) { frames.push_back(std::move(frame)); });
    if (read.state != FrameStream::Read::State::open || frames.size() == before) return frames;
  }
}

inline bool ended(FrameStream& stream) {
  return stream.read([](std::string&&) {}).state == FrameStream::Read::State::end_of_file;
}

}  // namespace gradmon
