// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "control/hub/keys/curve_keys.h"

namespace gradmon {

// Whether the user has said that TCP on loopback without keys is all right.
enum class InsecureLoopback { refused, allowed };

// "tcp://HOST:PORT" (PORT may be * where one listens): "" or why gradmon does not bind
// there without keys.
std::string bind_objection(const std::string& endpoint, InsecureLoopback loopback);
bool is_tcp(const std::string& endpoint);
bool is_loopback(const std::string& endpoint);  // of TCP

// The sockets of one process, and the one user of ZeroMQ. All of them are made
// in the constructor (libzmq aborts the process where it runs out of
// descriptors later), bounded in message size, and gone at once when closed.
// They speak CURVE, and only keys on the allow-list get in. One thread at a time.
class Bus {
 public:
  struct Incoming {
    std::string peer;  // whom to answer; "" where there is but one
    std::string bytes;
    bool whole = true;          // false: no message of ours, it had more than one frame
    bool admitted = true;       // false: its key is not, any more
    std::string client;         // by whose key it came; "" without keys
    Role role = Role::control;  // what that client may do
  };
  struct Limits {
    std::size_t most_bytes_in;
    std::size_t most_peers = 1000;  // at a TCP endpoint; fewer where descriptors are scarce
    // Of the end that listens on TCP: what one peer may leave unread before it is cut off.
    std::size_t most_bytes_out = std::size_t{8} << 20U;
  };

  // The end that listens: answers to many. The error says why
  // there is no network: no descriptors to spare, endpoint refused or in use.
  // Where the list of `keys` is empty nobody gets in until allow().
  // On TCP it raises the process's soft limit of descriptors to the hard one.
  static tl::expected<std::unique_ptr<Bus>, std::string> listen(const std::string& endpoint,
                                                                InsecureLoopback loopback, Limits limits,
                                                                std::optional<ServerKeys> keys = {});
  // The end that asks; connected later, once it is known where to.
  static tl::expected<std::unique_ptr<Bus>, std::string> ask(Limits limits,
                                                             std::optional<ClientKeys> keys = {});
  ~Bus();
  Bus(const Bus&) = delete;
  Bus& operator=(const Bus&) = delete;

  // Where it really listens: a * port replaced by the one taken.
  const std::string& endpoint() const { return endpoint_; }

  // An endpoint of another host needs keys. The keys are wiped once they are used.
  tl::expected<void, std::string> connect(const std::string& endpoint);
  // Of the end that listens with keys: this one gets in, too, from now on.
  void allow(const KeyBytes& key, Client client);
  // The same, in place of all that were let in: what others of them still send is marked so.
  void allow_only(AllowList clients);
  // Of the end that listens: "" or a line about whom it did not let in.
  std::string refusals() const;
  // Of the end that asks: "" or why the other end did not let it in.
  const std::string& refusal() const { return refusal_; }
  // Of the end that asks: "" or what may be wrong, since it was hung up on; a job
  // that is overloaded or stopped does that too.
  const std::string& hint() const { return hint_; }
  // Never waits; false: the peer is gone or its queue full, the message is lost.
  bool send(const std::string& peer, const std::string& bytes);
  // What to poll for: where one of these is readable, or after send(), poll() with no
  // time until there is no message.
  void add_to(std::vector<pollfd>& polled) const;
  // How long to wait for these: less than `at_most` where there are peers to bound.
  std::chrono::milliseconds longest_wait(std::chrono::milliseconds at_most) const;
  // Lets clients in, and cuts off those over a bound. poll() does it where there is no
  // message; where there may always be one, once a turn.
  void maintain_connections();
  // The next message; none when `timeout` has passed or `wake_fd` (-1: none) is readable.
  std::optional<Incoming> poll(std::chrono::milliseconds timeout, int wake_fd);

 private:
  struct Sockets;
  explicit Bus(std::unique_ptr<Sockets> sockets);
  std::optional<Incoming> next();
  void note_handshake(int event, std::uint32_t value);

  const std::unique_ptr<Sockets> sockets_;
  std::string endpoint_;
  std::optional<ClientKeys> keys_;  // until connected
  bool keyed_ = false;
  std::string refusal_;
  std::string hint_;
};

}  // namespace gradmon
