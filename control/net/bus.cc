// SPDX-License-Identifier: Apache-2.0
#include "control/net/bus.h"

#include <dirent.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string_view>
#include <utility>
#include <zmq.hpp>

namespace gradmon {
namespace {

constexpr std::size_t kDescriptorsToSpare = 64;
constexpr int kLingerMs = 100;
constexpr std::string_view kIpc = "ipc://";

std::size_t open_descriptors() {
  std::size_t count = 0;
  if (DIR* fds = opendir("/proc/self/fd")) {
    while (readdir(fds) != nullptr) ++count;
    closedir(fds);
  }
  return count;
}

std::string descriptor_shortage() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
  const std::size_t used = open_descriptors();
  if (used + kDescriptorsToSpare <= limit.rlim_cur) return "";
  return "no network: " + std::to_string(used) + " of " + std::to_string(limit.rlim_cur) +
         " file descriptors are in use, " + std::to_string(kDescriptorsToSpare) + " must be free";
}

bool is_loopback(std::string_view host) {
  return host == "127.0.0.1" || host == "localhost" || host == "[::1]";
}

void bound(zmq::socket_t& socket, Bus::Limits limits) {
  socket.set(zmq::sockopt::linger, kLingerMs);
  socket.set(zmq::sockopt::maxmsgsize, static_cast<std::int64_t>(limits.most_bytes_in));
  socket.set(zmq::sockopt::handshake_ivl, 2000);
}

// The socket file is made with no right for others; its directory is 0700 as well.
std::string bind_privately(zmq::socket_t& socket, const std::string& endpoint) {
  const mode_t before = umask(0077);
  try {
    socket.bind(endpoint);
  } catch (...) {
    umask(before);
    throw;
  }
  umask(before);
  return socket.get(zmq::sockopt::last_endpoint);
}

}  // namespace

std::string bind_objection(const std::string& endpoint, InsecureLoopback loopback) {
  if (endpoint.rfind(kIpc, 0) == 0) {
    if (endpoint.size() > kIpc.size() && endpoint[kIpc.size()] == '/') return "";
    return "refusing to listen on \"" + endpoint + "\": the socket's path must be absolute";
  }
  constexpr std::string_view tcp = "tcp://";
  const std::size_t colon = endpoint.rfind(':');
  if (endpoint.rfind(tcp, 0) != 0 || colon == std::string::npos || colon < tcp.size()) {
    return "refusing to listen on \"" + endpoint + "\": expected ipc:///PATH or tcp://127.0.0.1:PORT";
  }
  if (!is_loopback(std::string_view(endpoint).substr(tcp.size(), colon - tcp.size()))) {
    return "refusing to listen on \"" + endpoint +
           "\": other hosts need keys, which this version does not have";
  }
  if (loopback == InsecureLoopback::refused) {
    return "refusing to listen on \"" + endpoint +
           "\" without keys: any user of this host could command the job; GRADMON_INSECURE_LOOPBACK=1 "
           "accepts that";
  }
  return "";
}

struct Bus::Sockets {
  zmq::context_t context{1};
  zmq::socket_t talk;
  zmq::socket_t state;
  bool routes = false;
};

Bus::Bus(std::unique_ptr<Sockets> sockets) : sockets_(std::move(sockets)) {}

// Sockets before their context: members of Sockets die in reverse order.
Bus::~Bus() = default;

tl::expected<std::unique_ptr<Bus>, std::string> Bus::listen(const std::string& endpoint,
                                                            const std::string& state_endpoint,
                                                            InsecureLoopback loopback, Limits limits) {
  for (const std::string& asked : {endpoint, state_endpoint}) {
    if (std::string why = bind_objection(asked, loopback); !why.empty()) return tl::unexpected(why);
  }
  if (std::string why = descriptor_shortage(); !why.empty()) return tl::unexpected(why);
  try {
    auto sockets = std::make_unique<Sockets>();
    sockets->routes = true;
    sockets->talk = zmq::socket_t(sockets->context, zmq::socket_type::router);
    sockets->state = zmq::socket_t(sockets->context, zmq::socket_type::pub);
    bound(sockets->talk, limits);
    bound(sockets->state, limits);
    sockets->talk.set(zmq::sockopt::router_mandatory, true);
    std::unique_ptr<Bus> bus(new Bus(std::move(sockets)));
    bus->endpoint_ = bind_privately(bus->sockets_->talk, endpoint);
    bus->state_endpoint_ = bind_privately(bus->sockets_->state, state_endpoint);
    return bus;
  } catch (const zmq::error_t& error) {
    return tl::unexpected("cannot listen on " + endpoint + ": " + error.what());
  }
}

tl::expected<std::unique_ptr<Bus>, std::string> Bus::ask(Limits limits) {
  if (std::string why = descriptor_shortage(); !why.empty()) return tl::unexpected(why);
  try {
    auto sockets = std::make_unique<Sockets>();
    sockets->talk = zmq::socket_t(sockets->context, zmq::socket_type::dealer);
    bound(sockets->talk, limits);
    return std::unique_ptr<Bus>(new Bus(std::move(sockets)));
  } catch (const zmq::error_t& error) {
    return tl::unexpected(std::string("no network: ") + error.what());
  }
}

tl::expected<void, std::string> Bus::connect(const std::string& endpoint) {
  try {
    sockets_->talk.connect(endpoint);
    return {};
  } catch (const zmq::error_t& error) {
    return tl::unexpected("cannot connect to \"" + endpoint + "\": " + error.what());
  }
}

bool Bus::send(const std::string& peer, const std::string& bytes) {
  try {
    if (sockets_->routes) {
      const auto to =
          sockets_->talk.send(zmq::buffer(peer), zmq::send_flags::sndmore | zmq::send_flags::dontwait);
      if (!to) return false;
    }
    return sockets_->talk.send(zmq::buffer(bytes), zmq::send_flags::dontwait).has_value();
  } catch (const zmq::error_t&) {  // EHOSTUNREACH: that peer has gone.
    return false;
  }
}

void Bus::broadcast(const std::string& bytes) {
  try {
    sockets_->state.send(zmq::buffer(bytes), zmq::send_flags::dontwait);
  } catch (const zmq::error_t&) {  // Nobody is owed a broadcast.
  }
}

std::optional<Bus::Incoming> Bus::poll(std::chrono::milliseconds timeout, int wake_fd) {
  try {
    zmq::pollitem_t items[] = {{sockets_->talk.handle(), 0, ZMQ_POLLIN, 0},
                               {nullptr, wake_fd, ZMQ_POLLIN, 0}};
    zmq::poll(items, wake_fd >= 0 ? 2 : 1, timeout);
    if ((items[0].revents & ZMQ_POLLIN) == 0) return {};
    Incoming incoming;
    zmq::message_t part;
    if (!sockets_->talk.recv(part, zmq::recv_flags::dontwait)) return {};
    if (sockets_->routes) {
      incoming.peer = part.to_string();
      if (!part.more() || !sockets_->talk.recv(part, zmq::recv_flags::dontwait)) return Incoming{};
    }
    incoming.bytes = part.to_string();
    const bool whole = !part.more();
    while (part.more() && sockets_->talk.recv(part, zmq::recv_flags::dontwait)) {
    }
    return whole ? incoming : Incoming{};
  } catch (const zmq::error_t&) {  // EINTR: like a wake-up.
    return {};
  }
}

}  // namespace gradmon
