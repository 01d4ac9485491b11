// SPDX-License-Identifier: Apache-2.0
#include "control/hub/transport/publish_socket.h"

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <utility>
#include <zmq.hpp>

#include "control/host/unix_socket.h"
#include "control/hub/transport/descriptor_limit.h"
#include "control/hub/transport/socket_times.h"
#include "control/hub/transport/unix_listener.h"

namespace gradmon {
namespace {

constexpr std::size_t kDescriptors = 64;

void accept_only(zmq::socket_t& socket, uid_t user) {
  if (zmq_setsockopt(socket.handle(), ZMQ_IPC_FILTER_UID, &user, sizeof user) != 0) throw zmq::error_t();
}

}  // namespace

struct PublishSocket::Sockets {
  explicit Sockets(UnixListener at) : listener(std::move(at)) {}

  UnixListener listener;
  zmq::context_t context{1};
  zmq::socket_t publisher{context, zmq::socket_type::pub};
};

PublishSocket::PublishSocket(std::unique_ptr<Sockets> sockets) : sockets_(std::move(sockets)) {}

PublishSocket::~PublishSocket() = default;

// Binds the path itself, because libzmq unlinks any file at the path when it binds and when it closes, even
// the socket of a later process.
tl::expected<std::unique_ptr<PublishSocket>, std::string> PublishSocket::listen(
    const std::filesystem::path& path) {
  if (std::string why = descriptor_shortage(kDescriptors); !why.empty()) return tl::unexpected(why);
  auto listener = UnixListener::listen(path);
  if (!listener) return tl::unexpected(listener.error());
  try {
    auto sockets = std::make_unique<Sockets>(std::move(*listener));
    zmq::socket_t& publisher = sockets->publisher;
    publisher.set(zmq::sockopt::linger, kLingerMs);
    publisher.set(zmq::sockopt::sndhwm, kMostWaiting);
    publisher.set(zmq::sockopt::maxmsgsize, std::int64_t{kMostBytesIn});
    publisher.set(zmq::sockopt::handshake_ivl, kHandshakeMs);
    accept_only(publisher, ::geteuid());
    accept_only(publisher, 0);
    // libzmq closes this descriptor.
    publisher.set(zmq::sockopt::use_fd, ::fcntl(sockets->listener.fd(), F_DUPFD_CLOEXEC, 0));
    publisher.bind(ipc_endpoint(path));
    return std::unique_ptr<PublishSocket>(new PublishSocket(std::move(sockets)));
  } catch (const zmq::error_t& error) {
    return tl::unexpected("cannot publish at " + path.string() + ": " + error.what());
  }
}

void PublishSocket::send(const std::string& topic, const std::string& text) {
  try {
    const auto flags = zmq::send_flags::dontwait;
    if (sockets_->publisher.send(zmq::buffer(topic), flags | zmq::send_flags::sndmore))
      static_cast<void>(sockets_->publisher.send(zmq::buffer(text), flags));
  } catch (const zmq::error_t&) {  // EINTR before the first frame: acts as without subscribers.
  }
}

int PublishSocket::fd() const {
  int fd = -1;
  std::size_t size = sizeof fd;
  return zmq_getsockopt(sockets_->publisher.handle(), ZMQ_FD, &fd, &size) == 0 ? fd : -1;
}

// Reading the events makes libzmq process the subscriptions.
void PublishSocket::handle_subscribers() {
  int events = 0;
  std::size_t size = sizeof events;
  static_cast<void>(zmq_getsockopt(sockets_->publisher.handle(), ZMQ_EVENTS, &events, &size));
}

}  // namespace gradmon
