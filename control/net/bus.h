// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tl/expected.hpp>

#include "control/net/curve_keys.h"

namespace gradmon {

// Whether the user has said that TCP on loopback without keys is all right.
enum class InsecureLoopback { refused, allowed };

// "ipc://PATH" or "tcp://HOST:PORT" (PORT may be * where one listens): "" or why
// gradmon does not bind there without keys.
std::string bind_objection(const std::string& endpoint, InsecureLoopback loopback);
bool is_tcp(const std::string& endpoint);
bool is_loopback(const std::string& endpoint);  // of TCP

// The sockets of one process, and the one user of ZeroMQ. All of them are made
// in the constructor (libzmq aborts the process where it runs out of
// descriptors later), bounded in message size, and gone at once when closed.
// On TCP they speak CURVE, and only keys on the allow-list get in; on a Unix
// socket the file's owner does, and keys are not used. One thread at a time.
class Bus {
 public:
  struct Incoming {
    std::string peer;  // whom to answer; "" where there is but one
    std::string bytes;
    bool whole = true;          // false: no message of ours, it had more than one frame
    std::string client;         // by whose key it came; "" without keys
    Role role = Role::control;  // what that client may do
  };
  struct Limits {
    std::size_t most_bytes_in;
    std::size_t most_peers = 1000;  // at a TCP endpoint; fewer where descriptors are scarce
  };

  // The end that listens: answers to many, broadcasts state. The error says why
  // there is no network: no descriptors to spare, endpoint refused or in use.
  // On TCP it raises the process's soft limit of descriptors to the hard one.
  static tl::expected<std::unique_ptr<Bus>, std::string> listen(const std::string& endpoint,
                                                                const std::string& state_endpoint,
                                                                InsecureLoopback loopback, Limits limits,
                                                                std::optional<ServerKeys> keys = {});
  // The end that asks; connected later, once it is known where to.
  static tl::expected<std::unique_ptr<Bus>, std::string> ask(Limits limits,
                                                             std::optional<ClientKeys> keys = {});
  // The end that hears broadcasts; connected later. It only polls.
  static tl::expected<std::unique_ptr<Bus>, std::string> hear(Limits limits,
                                                              std::optional<ClientKeys> keys = {});

  ~Bus();
  Bus(const Bus&) = delete;
  Bus& operator=(const Bus&) = delete;

  // Where it really listens: a * port replaced by the one taken.
  const std::string& endpoint() const { return endpoint_; }
  const std::string& state_endpoint() const { return state_endpoint_; }

  // An endpoint of another host needs keys. The keys are wiped once they are used.
  tl::expected<void, std::string> connect(const std::string& endpoint);
  // Of the end that asks: "" or why the other end did not let it in.
  const std::string& refusal() const { return refusal_; }
  // Of the end that asks: "" or what may be wrong, since it was hung up on; a job
  // that is overloaded or stopped does that too.
  const std::string& hint() const { return hint_; }
  // Never waits; false: the peer is gone or its queue full, the message is lost.
  bool send(const std::string& peer, const std::string& bytes);
  void broadcast(const std::string& bytes);
  // The next message; none when `timeout` has passed or `wake_fd` (-1: none) is readable.
  std::optional<Incoming> poll(std::chrono::milliseconds timeout, int wake_fd);

 private:
  struct Sockets;
  explicit Bus(std::unique_ptr<Sockets> sockets);
  std::optional<Incoming> next();
  void look_after_connections();
  void note_handshake(int event, std::uint32_t value);

  const std::unique_ptr<Sockets> sockets_;
  std::string endpoint_;
  std::string state_endpoint_;
  std::optional<ClientKeys> keys_;  // until connected
  bool over_tcp_ = false;
  bool keyed_ = false;
  std::string refusal_;
  std::string hint_;
};

}  // namespace gradmon
