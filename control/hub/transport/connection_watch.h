// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <zmq.hpp>

namespace gradmon {

// The events that libzmq's I/O thread reports about the connections of one socket. Destroy it before the
// socket. Used by the thread of its Bus.
class ConnectionWatch {
 public:
  // event: ZMQ_EVENT_…; value: depends on the event (descriptor, errno, ZAP status …).
  using OnEvent = std::function<void(int event, std::uint32_t value)>;

  // `name`: unique in the context; `events`: a mask of ZMQ_EVENT_…. Make it before bind or connect.
  ConnectionWatch(zmq::context_t& context, zmq::socket_t& watched, const std::string& name, int events);
  ~ConnectionWatch();
  ConnectionWatch(const ConnectionWatch&) = delete;
  ConnectionWatch& operator=(const ConnectionWatch&) = delete;

  void* handle() { return events_.handle(); }  // readable when events wait
  void take(const OnEvent& on_event);

 private:
  zmq::socket_t& watched_;
  zmq::socket_t events_;
};

}  // namespace gradmon
