// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "control/aliases.h"
#include "control/files/descriptor.h"
#include "control/host/rate_limits.h"
#include "control/host/unix_stream.h"

namespace gradmon {

// A Unix socket that listens at a path and accepts only this user and root. Never blocks. The caller holds
// the job's lock, so a socket of this user at the path was left by an earlier hub and is removed. One
// thread.
class UnixListener {
 public:
  // peer: `socket` is connected, non-blocking and close-on-exec. refused: a connection was refused. nobody:
  // no connection waits. stuck: a connection waits, but the system lacks the resources to accept it. poll(2)
  // would return at once, so try again later.
  struct Accepted {
    enum class Kind { peer, refused, nobody, stuck };

    Kind kind = Kind::nobody;
    Descriptor socket;   // peer only
    std::string reason;  // refused and stuck only
  };

  [[nodiscard]] static Result<UnixListener> listen(fs::path path);
  UnixListener(UnixListener&&) noexcept = default;
  UnixListener& operator=(UnixListener&&) = delete;
  // Removes the path if it still names this socket.
  ~UnixListener();

  int fd() const { return socket_.get(); }
  // If the process is out of descriptors, accepts a connection with a spare one and closes it at once. So the
  // client notices, and poll(2) does not report the connection forever.
  Accepted accept();
  // True if the path names this socket.
  bool at_path() const;
  // Binds a new socket to the path. An error if a file already exists there: it belongs to another hub.
  // Connections that are not accepted yet are lost.
  [[nodiscard]] Result<void> bind_again();

 private:
  explicit UnixListener(fs::path path) : path_(std::move(path)) {}
  void open_spare();
  Accepted turn_away();

  fs::path path_;
  Descriptor socket_;
  dev_t device_ = 0;  // of the bound path
  ino_t inode_ = 0;
  Descriptor spare_;
};

// One connection to a StreamServer: a number from 1, never reused.
struct Peer {
  std::uint64_t value = 0;

  friend constexpr bool operator==(Peer a, Peer b) { return a.value == b.value; }
  friend constexpr bool operator!=(Peer a, Peer b) { return a.value != b.value; }
  friend constexpr bool operator<(Peer a, Peer b) { return a.value < b.value; }
};

// The hub's end of the Unix streams of ranks and clients. It accepts this user and root, hands out the peers'
// frames, sends them frames, and bounds the resources of each. Cuts off a peer over a bound, without effect
// on the others. Never blocks. One thread, which polls:
//
//   fds.clear(); server.add_to(fds);             // and other descriptors
//   poll(fds, server.longest_wait(at_most));
//   server.handle(fds, callbacks);
//
// A rank is a peer for which admit() was called. All others are clients. Any process of this user can be a
// client, in any number. So clients are served after the ranks, in turn, one frame each, and only a limited
// number is kept. A client's next frame is taken after it has read the answers to its earlier frames.
class StreamServer {
 public:
  using Clock = std::chrono::steady_clock;
  using Now = std::function<Clock::time_point()>;

  struct Limits {
    std::size_t most_connections = 1024;
    // Clients that have sent no frame yet, and clients that have. At these bounds a new client displaces
    // another: the oldest silent client, after `min_silence`; of the others a client that does not read, or
    // else the client with the most turns.
    std::size_t most_unidentified = 128;
    std::size_t most_clients = 64;
    // Only the newest clients in the middle of a frame longer than `long_frame` bytes are kept.
    std::size_t long_frame = std::size_t{64} << 10U;
    std::size_t most_long_frames = 8;
    std::chrono::milliseconds min_silence{50};
    std::chrono::milliseconds first_frame_timeout{5000};  // cuts a client that sends no frame for this time
    std::chrono::milliseconds read_timeout{3000};  // cuts a client that leaves an answer unread for this time
    std::chrono::milliseconds client_time_slice{10};  // for all clients, in one handle(); 0: no limit
    FrameStream::Limits stream{(std::size_t{2} << 20U) + (std::size_t{64} << 10U), std::size_t{5} << 20U};
    // A rank that sends faster is cut. The burst allows for a pause of this process.
    TokenBucket::Rate rank{100, 2100};
    // A client that sends faster waits.
    TokenBucket::Rate client{20, 40};
  };

  // by_peer: the other side closed the connection or died. cut: this side closed it, because of a bound or
  // by cut().
  enum class Closed { by_peer, cut };

  // Called by handle() only. They may call any function here except handle() and rebind().
  struct Callbacks {
    std::function<void(Peer, std::string&&)> on_frame;
    // Called once for each peer, after its last frame; also for a peer that never sent a frame.
    std::function<void(Peer, Closed, const std::string& reason)> on_closed;
  };

  // Connections refused at accept, which never became a peer.
  struct Refused {
    std::uint64_t count = 0;
    std::string last_reason;
  };

  // The caller has checked the path's directory and holds the job's lock.
  [[nodiscard]] static Result<std::unique_ptr<StreamServer>> listen(const fs::path& path, Limits limits,
                                                                    Now now = Clock::now);
  ~StreamServer();
  StreamServer(const StreamServer&) = delete;
  StreamServer& operator=(const StreamServer&) = delete;

  // Appends the descriptors to poll.
  void add_to(std::vector<pollfd>& polled) const;
  // The timeout for poll(2): `at_most`, or less if handle() has earlier work.
  std::chrono::milliseconds longest_wait(std::chrono::milliseconds at_most) const;
  // Call it after poll(2), with the vector that add_to() filled; other descriptors in it are ignored.
  void handle(const std::vector<pollfd>& polled, const Callbacks& callbacks);

  // Queues a frame. False: the peer is unknown or has gone, or it has left so much unread that this call cuts
  // it.
  bool send(Peer peer, std::string_view frame);
  // Makes the peer a rank. Its next frames may have `most_bytes_in` bytes.
  void admit(Peer peer, std::size_t most_bytes_in);
  // Closes the connection; handle() calls on_closed next time.
  void cut(Peer peer, std::string reason);

  // Listens at the path again if it has vanished; peers stay connected. An error if the path now names
  // another file or cannot be bound.
  enum class Rebound { kept, made };
  [[nodiscard]] Result<Rebound> rebind();

  std::size_t connections() const { return connections_.size(); }
  const Refused& refused() const { return refused_; }

 private:
  struct Connection;
  struct Ended {
    Peer peer;
    Closed how;
    std::string reason;
    std::unique_ptr<Connection> connection;  // handle() may be reading from it
  };

  StreamServer(UnixListener listener, Limits limits, Now now);
  void serve_rank(Peer peer, short events, const Callbacks& callbacks);
  bool serve_clients(const std::set<Peer>& readable, const Callbacks& callbacks);
  void serve_client(Peer peer, const Callbacks& callbacks);
  void dispatch(Peer peer, std::string&& frame, const Callbacks& callbacks);
  bool has_room() const;
  void close_after(Peer peer, const FrameStream::Read& read);
  Clock::time_point next_turn(const Connection& client) const;
  void check_unread_bytes(Connection& client) const;
  void cut_one_client();
  void cut_long_frames();
  void accept_waiting();
  void welcome(Descriptor socket);
  void refuse(std::string reason);
  void end(Peer peer, Closed how, std::string reason);
  void cut_idle();
  void report_ended(const Callbacks& callbacks);

  const Limits limits_;
  const Now now_;

  UnixListener listener_;
  std::optional<Clock::time_point> listen_again_;  // the listener is not polled until then
  std::map<Peer, std::unique_ptr<Connection>> connections_;
  std::unordered_map<int, Peer> by_fd_;
  std::set<Peer> unidentified_;  // clients that have sent no frame yet, the oldest first
  std::set<Peer> clients_;       // all other clients
  Peer last_turn_;               // the client that had the last turn
  std::vector<Ended> ended_;     // not yet reported
  Peer newest_;
  Refused refused_;
};

}  // namespace gradmon
