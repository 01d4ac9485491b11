// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <zmq.hpp>

namespace gradmon {

// What libzmq's I/O thread tells of one socket's connections. Goes before the
// socket does; the thread of the Bus that owns it.
class ConnectionWatch {
 public:
  // event: ZMQ_EVENT_…; value: its number (descriptor, errno, ZAP status …).
  using OnEvent = std::function<void(int event, std::uint32_t value)>;

  // `name`: of its own in the context; `events`: those wanted. Before bind or connect.
  ConnectionWatch(zmq::context_t& context, zmq::socket_t& watched, const std::string& name, int events);
  ~ConnectionWatch();
  ConnectionWatch(const ConnectionWatch&) = delete;
  ConnectionWatch& operator=(const ConnectionWatch&) = delete;

  void* handle() { return events_.handle(); }  // readable when there is something
  void take(const OnEvent& on_event);

 private:
  zmq::socket_t& watched_;
  zmq::socket_t events_;
};

}  // namespace gradmon
