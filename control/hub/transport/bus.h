// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "control/aliases.h"
#include "control/hub/transport/curve_keys.h"

namespace gradmon {

// For every ZeroMQ socket of the hub, in milliseconds.
inline constexpr int kLingerMs = 100;      // longest delay of the end by unsent messages
inline constexpr int kHandshakeMs = 2000;  // a peer that needs longer for its handshake is dropped

// allowed: the user allows TCP on loopback without keys.
enum class InsecureLoopback { refused, allowed };

// "" or the reason not to bind to this endpoint without keys. Expects "tcp://HOST:PORT"; PORT may be "*".
std::string bind_objection(const std::string& endpoint, InsecureLoopback loopback);
bool is_tcp(const std::string& endpoint);
bool is_loopback(const std::string& endpoint);  // a TCP endpoint

// One end of a ZeroMQ connection, and the only interface to ZeroMQ. All sockets are made at construction,
// because libzmq aborts the process if it runs out of descriptors later. The size of messages is bounded;
// closing waits at most 100 ms for unsent ones. With keys, the sockets use CURVE and only keys on the
// allow-list can connect. One thread at a time.
class Bus {
 public:
  struct Incoming {
    std::string peer;  // the sender, for send(); "" on the asking end
    std::string bytes;
    bool whole = true;          // false: drop it, it had several frames or exceeded the peer's message rate
    bool admitted = true;       // false: its key is no longer on the allow-list
    std::string client;         // the name of the sender's key; "" without keys
    Role role = Role::control;  // of that client
  };
  struct Limits {
    std::size_t most_bytes_in;
    std::size_t most_peers = 1000;  // fewer if descriptors are scarce
    // Listening end: the unread bytes at which a peer is cut off.
    std::size_t most_bytes_out = std::size_t{8} << 20U;
  };

  // The listening end, for many peers. The error is the reason why it cannot listen: too few free
  // descriptors, endpoint refused or in use. With an empty allow-list in `keys`, all peers are refused until
  // allow(). Raises the process's soft limit of descriptors (connection_limits.h).
  static Result<std::unique_ptr<Bus>> make_server(const std::string& endpoint, InsecureLoopback loopback,
                                                  Limits limits, std::optional<ServerKeys> keys = {});
  // The asking end, not connected yet.
  static Result<std::unique_ptr<Bus>> make_client(Limits limits, std::optional<ClientKeys> keys = {});
  ~Bus();
  Bus(const Bus&) = delete;
  Bus& operator=(const Bus&) = delete;

  // The bound endpoint: the real port replaces a port "*". "" on the asking end.
  const std::string& endpoint() const { return endpoint_; }

  // Asking end. An endpoint that is not on loopback needs keys. The keys are wiped after use.
  Result<void> connect(const std::string& endpoint);
  // Listening end with keys: adds a key to the allow-list.
  void allow(const KeyBytes& key, Client client);
  // Listening end with keys: replaces the allow-list. Open connections of removed clients stay, and their
  // messages are marked as not admitted.
  void allow_only(AllowList clients);
  // Listening end: "" or a line about refused connections.
  std::string refusals() const;
  // Asking end: "" or the reason why the other end refused the connection.
  const std::string& refusal() const { return refusal_; }
  // Asking end: "" or a possible reason why the other end closed the connection during the handshake. An
  // overloaded or stopped job closes it as well.
  const std::string& hint() const { return hint_; }
  // Never waits. On false, the message is lost: the peer has gone, its queue is full, or it leaves too many
  // bytes unread. Ignores `peer` on the asking end.
  bool send(const std::string& peer, const std::string& bytes);
  // Appends the descriptors to poll. If one is readable, and after send(), call poll() with timeout 0 until
  // it returns no message.
  void add_to(std::vector<pollfd>& polled) const;
  // The timeout for polling them: `at_most`, or less while connections must be measured.
  std::chrono::milliseconds longest_wait(std::chrono::milliseconds at_most) const;
  // Answers requests to connect, and cuts off peers over a bound. poll() with timeout 0 does so only if no
  // message is ready; under constant load call this once a turn.
  void maintain_connections();
  // Returns the next message. Nullopt if `timeout` has passed, `wake_fd` (-1: none) is readable, the
  // connection was refused, or a signal came.
  std::optional<Incoming> poll(std::chrono::milliseconds timeout, int wake_fd);

 private:
  struct Sockets;
  explicit Bus(std::unique_ptr<Sockets> sockets);
  std::optional<Incoming> next();
  void note_handshake(int event, std::uint32_t value);

  const std::unique_ptr<Sockets> sockets_;
  std::string endpoint_;
  std::optional<ClientKeys> keys_;  // until connected
  bool uses_curve_ = false;
  std::string refusal_;
  std::string hint_;
};

// Serves a ZeroMQ PUB socket at ipc://PATH for subscribers of this user and root, until the other end of
// `packets`, a SOCK_SEQPACKET socket, is closed. A packet is a topic, which subscribers choose by its first
// bytes, a NUL, and a text. Never waits for a subscriber: one with kMostUnread unread messages misses the
// next ones. A message from a subscriber has at most kMostFromSubscriber bytes (a topic, or the metadata of
// the handshake); a subscriber that sends more is cut off. Nothing else bounds its requests, so call this in
// a process that may fail (alert_publisher.h). Takes at most 64 descriptors. Removes a socket of this user
// that an earlier process left at the path, and at the end its own. Returns the error, or "".
inline constexpr int kMostUnread = 1'000;
inline constexpr int kMostFromSubscriber = 512;
std::string publish_packets(int packets, const fs::path& path);

}  // namespace gradmon
