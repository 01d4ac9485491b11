// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <filesystem>
#include <list>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>

#include "control/net/wake_up.h"

namespace gradmon {

// What a link does to the bytes that pass it. Bytes of a cut direction are kept
// and delivered once it is restored, as TCP would send them again.
struct LinkFaults {
  std::chrono::milliseconds least_delay{0};  // each way
  std::chrono::milliseconds most_delay{0};
  bool cut_up = false;    // from the rank to rank 0
  bool cut_down = false;  // from rank 0 to the rank
};

// Stands between the ranks and rank 0's Unix socket, a link for each rank: a
// thread of its own that passes bytes on, late, or not at all. All public
// functions: any thread.
class LinkProxy {
 public:
  // `upstream` is the path of rank 0's socket, which need not be there yet; the
  // links' own sockets are made beside it.
  LinkProxy(std::filesystem::path upstream, int world_size);
  ~LinkProxy();
  LinkProxy(const LinkProxy&) = delete;
  LinkProxy& operator=(const LinkProxy&) = delete;

  // Where a rank connects to, as ZeroMQ names it.
  std::string endpoint(int rank) const;
  void set(int rank, LinkFaults faults);
  void set_all(LinkFaults faults);
  // Closes the connections that pass this link, with what is under way in them.
  void drop(int rank);

 private:
  using Clock = std::chrono::steady_clock;

  struct Piece {
    Clock::time_point due;
    std::string bytes;
  };
  // One direction of a connection.
  struct Stream {
    int from = -1;
    int to = -1;
    std::list<Piece> pieces;  // due one after another
    std::size_t held = 0;     // bytes in them
    bool blocked = false;     // `to` takes no more for now
  };
  struct Connection {
    Stream up;
    Stream down;
    bool broken = false;
  };
  struct Link {
    int listener = -1;
    LinkFaults faults;
    std::list<Connection> connections;
  };

  void run();
  void pass_once();  // Requires mutex_, which it gives up while it waits.
  void accept_into(Link& link);
  void read_into(Stream& stream, const LinkFaults& faults, bool& broken);
  static void deliver(Stream& stream, Clock::time_point now, bool& broken);
  static void close_broken(Link& link);
  std::filesystem::path path_of(int rank) const;

  const std::filesystem::path upstream_;
  const WakeUp wake_;
  std::mutex mutex_;
  // Guarded by mutex_.
  std::map<int, Link> links_;
  std::mt19937 random_{1};
  bool stopping_ = false;
  // Keep last: it runs on the others.
  std::thread thread_;
};

}  // namespace gradmon
