// SPDX-License-Identifier: Apache-2.0
#include "control/hub/transport/connection_watch.h"

#include <cstring>

namespace gradmon {
namespace {

constexpr std::size_t kEventBytes = sizeof(std::uint16_t) + sizeof(std::uint32_t);

}  // namespace

ConnectionWatch::ConnectionWatch(zmq::context_t& context, zmq::socket_t& watched, const std::string& name,
                                 int events)
    : watched_(watched), events_(context, zmq::socket_type::pair) {
  const std::string endpoint = "inproc://gradmon.watch." + name;
  if (zmq_socket_monitor(watched_.handle(), endpoint.c_str(), events) != 0) throw zmq::error_t();
  events_.set(zmq::sockopt::linger, 0);
  events_.set(zmq::sockopt::rcvhwm, 0);  // No limit: a full queue would block the I/O thread.
  events_.connect(endpoint);
}

ConnectionWatch::~ConnectionWatch() { zmq_socket_monitor(watched_.handle(), nullptr, 0); }

void ConnectionWatch::take(const OnEvent& on_event) {
  zmq::message_t part;
  while (events_.recv(part, zmq::recv_flags::dontwait)) {
    std::uint16_t event = 0;
    std::uint32_t value = 0;
    const bool whole = part.size() == kEventBytes;
    if (whole) {
      std::memcpy(&event, part.data(), sizeof event);
      std::memcpy(&value, part.data<char>() + sizeof event, sizeof value);
    }
    while (part.more() && events_.recv(part, zmq::recv_flags::dontwait)) {
    }
    if (whole) on_event(event, value);
  }
}

}  // namespace gradmon
