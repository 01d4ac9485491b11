// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <tl/expected.hpp>

namespace gradmon {

// Whether the user has said that TCP on loopback without keys is all right.
enum class InsecureLoopback { refused, allowed };

// "ipc://PATH" or "tcp://127.0.0.1:PORT" (PORT may be * where one listens): "" or
// why gradmon does not bind there.
std::string bind_objection(const std::string& endpoint, InsecureLoopback loopback);

// The sockets of one process, and the one user of ZeroMQ. All of them are made
// in the constructor (libzmq aborts the process where it runs out of
// descriptors later), bounded in message size, and gone at once when closed.
// One thread at a time.
class Bus {
 public:
  struct Incoming {
    std::string peer;  // whom to answer; "" where there is but one
    std::string bytes;
  };
  struct Limits {
    std::size_t most_bytes_in;
  };

  // The end that listens: answers to many, broadcasts state. The error says why
  // there is no network: no descriptors to spare, endpoint refused or in use.
  static tl::expected<std::unique_ptr<Bus>, std::string> listen(const std::string& endpoint,
                                                                const std::string& state_endpoint,
                                                                InsecureLoopback loopback, Limits limits);
  // The end that asks; connected later, once it is known where to.
  static tl::expected<std::unique_ptr<Bus>, std::string> ask(Limits limits);

  ~Bus();
  Bus(const Bus&) = delete;
  Bus& operator=(const Bus&) = delete;

  // Where it really listens: a * port replaced by the one taken.
  const std::string& endpoint() const { return endpoint_; }
  const std::string& state_endpoint() const { return state_endpoint_; }

  tl::expected<void, std::string> connect(const std::string& endpoint);
  // Never waits; false: the peer is gone or its queue full, the message is lost.
  bool send(const std::string& peer, const std::string& bytes);
  void broadcast(const std::string& bytes);
  // The next message; none when `timeout` has passed or `wake_fd` (-1: none) is readable.
  std::optional<Incoming> poll(std::chrono::milliseconds timeout, int wake_fd);

 private:
  struct Sockets;
  explicit Bus(std::unique_ptr<Sockets> sockets);

  const std::unique_ptr<Sockets> sockets_;
  std::string endpoint_;
  std::string state_endpoint_;
};

}  // namespace gradmon
