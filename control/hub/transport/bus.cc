// SPDX-License-Identifier: Apache-2.0
#include "control/hub/transport/bus.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <string_view>
#include <utility>
#include <zmq.hpp>

#include "control/host/unix_stream.h"
#include "control/hub/transport/connection_limits.h"
#include "control/hub/transport/stream_server.h"
#include "control/log.h"

namespace gradmon {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr int kBacklog = 100;
constexpr std::size_t kMinFreeDescriptors = 64;
// Up to two backlogs of peers may still connect after the connection limiter has closed.
constexpr std::size_t kPendingPeers = 2 * kBacklog;
constexpr std::size_t kMinFreeDescriptorsToListen = 3 * (kPendingPeers + kMinFreeDescriptors);
constexpr std::size_t kCurveOverhead = 64;  // most bytes that CURVE adds to a message
// Bytes of each kernel buffer of a connection; by default the kernel grows them to many times that.
constexpr int kSocketBuffer = 256 * 1024;
constexpr int kServerTcpTimeoutMs = 15'000;  // drops a peer that reads nothing for this time
// A broken connection to the lead hub is retried before a lease ends (10 s). TCP alone would wait for a
// minute or more.
constexpr int kClientTcpTimeoutMs = 5'000;
constexpr int kConnectMs = 2'000;
constexpr std::string_view kTcp = "tcp://";

constexpr std::size_t kEventBytes = sizeof(std::uint16_t) + sizeof(std::uint32_t);

// The events that libzmq's I/O thread reports about the connections of one socket. Destroy it before the
// socket. Used by the thread of its Bus.
class ConnectionWatch {
 public:
  // event: ZMQ_EVENT_…; value: depends on the event (descriptor, errno, ZAP status …).
  using OnEvent = std::function<void(int event, std::uint32_t value)>;

  // `name`: unique in the context; `events`: a mask of ZMQ_EVENT_…. Make it before bind or connect.
  ConnectionWatch(zmq::context_t& context, zmq::socket_t& watched, const std::string& name, int events)
      : watched_(watched), events_(context, zmq::socket_type::pair) {
    const std::string endpoint = "inproc://gradmon.watch." + name;
    if (zmq_socket_monitor(watched_.handle(), endpoint.c_str(), events) != 0) throw zmq::error_t();
    events_.set(zmq::sockopt::linger, 0);
    events_.set(zmq::sockopt::rcvhwm, 0);  // No limit: a full queue would block the I/O thread.
    events_.connect(endpoint);
  }
  ~ConnectionWatch() { zmq_socket_monitor(watched_.handle(), nullptr, 0); }
  ConnectionWatch(const ConnectionWatch&) = delete;
  ConnectionWatch& operator=(const ConnectionWatch&) = delete;

  zmq::pollitem_t poll_item() { return {events_.handle(), 0, ZMQ_POLLIN, 0}; }  // readable: events
  void take(const OnEvent& on_event) {
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

 private:
  zmq::socket_t& watched_;
  zmq::socket_t events_;
};

constexpr const char* kZapEndpoint = "inproc://zeromq.zap.01";
constexpr std::size_t kVersion = 0;
constexpr std::size_t kRequestId = 1;
constexpr std::size_t kAddress = 3;
constexpr std::size_t kMechanism = 5;
constexpr std::size_t kCredentials = 6;
constexpr std::size_t kQuestionParts = 7;
constexpr const char* kZapVersion = "1.0";

// Answers libzmq's requests whether a key may connect (ZAP, ZeroMQ's RFC 27). Without an answer no peer can
// connect. Make it before the sockets that it guards are bound. Used by the thread of its Bus.
class ZapHandler {
 public:
  static constexpr const char* kDomain = "gradmon";

  ZapHandler(zmq::context_t& context, AllowList clients)
      : clients_(std::move(clients)), questions_(context, zmq::socket_type::rep) {
    questions_.set(zmq::sockopt::linger, 0);
    questions_.bind(kZapEndpoint);
  }

  zmq::pollitem_t poll_item() { return {questions_.handle(), 0, ZMQ_POLLIN, 0}; }  // readable: requests
  void answer() {
    for (Parts asked = next_question(); !asked.empty(); asked = next_question()) answer(asked);
  }
  // Adds a key to the allow-list. Replaces the client that the key had before.
  void allow(const KeyBytes& key, Client client) { clients_.insert_or_assign(key, std::move(client)); }
  // Replaces the allow-list. Open connections stay.
  void allow_only(AllowList clients) { clients_ = std::move(clients); }
  // The listed client with this key in Z85, which libzmq attaches to each message as its user id; null: the
  // key is no longer listed. Valid until the next allow() or allow_only(). The name is unsuitable as user id:
  // its line may have another key by now.
  const Client* client(const std::string& user_id) const {
    KeyBytes key{};
    if (user_id.size() != kKeyText || from_z85(user_id, key)) return nullptr;
    const auto listed = clients_.find(key);
    return listed == clients_.end() ? nullptr : &listed->second;
  }
  // "" or a line for the status: the number of refused connections, and the last one's key and address.
  std::string refusals() const {
    if (refused_ == 0) return "";
    return std::to_string(refused_) + (refused_ == 1 ? " connection" : " connections") +
           " refused: key not in clients.allow; last: " + last_refused_;
  }

 private:
  using Parts = std::vector<std::string>;

  Parts next_question() {
    Parts parts;
    zmq::message_t part;
    while (questions_.recv(part, zmq::recv_flags::dontwait)) {
      parts.push_back(part.to_string());
      if (!part.more()) break;
    }
    return parts;
  }

  void answer(const Parts& asked) {
    const Client* client = nullptr;
    std::string who = asked.size() > kAddress ? asked[kAddress] : "?";
    std::string user_id;
    if (asked.size() == kQuestionParts && asked[kVersion] == kZapVersion && asked[kMechanism] == "CURVE") {
      KeyBytes key{};
      const std::string& given = asked[kCredentials];
      const auto listed = given.size() == key.size()
                              ? (std::copy(given.begin(), given.end(), key.begin()), clients_.find(key))
                              : clients_.end();
      if (listed != clients_.end()) client = &listed->second;
      user_id = to_z85(key);
      who = user_id + " at " + who;
    }
    const Parts answer = {kZapVersion,
                          asked.size() > kRequestId ? asked[kRequestId] : "",
                          client != nullptr ? "200" : "400",
                          client != nullptr ? "OK" : "not listed",
                          client != nullptr ? user_id : "",
                          ""};
    if (client == nullptr) {
      refused_ += 1;
      last_refused_ = std::move(who);
      log_debug("refused a client: " + last_refused_);
    }
    for (std::size_t i = 0; i < answer.size(); ++i) {
      const auto flags = zmq::send_flags::dontwait;
      questions_.send(zmq::buffer(answer[i]),
                      i + 1 < answer.size() ? flags | zmq::send_flags::sndmore : flags);
    }
  }

  AllowList clients_;
  std::uint64_t refused_ = 0;
  std::string last_refused_;
  zmq::socket_t questions_;
};

std::string_view host_part(const std::string& endpoint) {
  const std::size_t colon = endpoint.rfind(':');
  if (!is_tcp(endpoint) || colon < kTcp.size()) return {};
  return std::string_view(endpoint).substr(kTcp.size(), colon - kTcp.size());
}

bool is_ipv6(const std::string& endpoint) { return endpoint.find('[') != std::string::npos; }

std::size_t on_the_wire(std::size_t bytes) { return bytes + kCurveOverhead; }

void bound(zmq::socket_t& socket, std::size_t most_bytes_in) {
  socket.set(zmq::sockopt::linger, kLingerMs);
  socket.set(zmq::sockopt::maxmsgsize, static_cast<std::int64_t>(most_bytes_in));
  socket.set(zmq::sockopt::handshake_ivl, kHandshakeMs);
  socket.set(zmq::sockopt::backlog, kBacklog);
}

void bound_buffers(zmq::socket_t& socket) {
  socket.set(zmq::sockopt::rcvbuf, kSocketBuffer);
  socket.set(zmq::sockopt::sndbuf, kSocketBuffer);
  socket.set(zmq::sockopt::tcp_maxrt, kServerTcpTimeoutMs);
}

ConnectionMeter::Limits meter_limits(const Bus::Limits& limits, bool keys) {
  ConnectionMeter::Limits meter;
  meter.most_in = 2 * limits.most_bytes_in + 4 * kSocketBuffer;
  meter.most_out = limits.most_bytes_out;
  meter.keys = keys;
  return meter;
}

zmq::const_buffer buffer(const KeyBytes& key) { return zmq::buffer(key.data(), key.size()); }

// Detects peers that vanished without closing the connection (host or firewall failed), so that the
// connection limiter does not count them forever.
void enable_keepalive(zmq::socket_t& socket) {
  socket.set(zmq::sockopt::tcp_keepalive, 1);
  socket.set(zmq::sockopt::tcp_keepalive_idle, 60);
  socket.set(zmq::sockopt::tcp_keepalive_intvl, 10);
  socket.set(zmq::sockopt::tcp_keepalive_cnt, 3);
}

void guard(zmq::socket_t& socket, const SecretKey& secret) {
  socket.set(zmq::sockopt::zap_domain, ZapHandler::kDomain);
  socket.set(zmq::sockopt::curve_server, true);
  socket.set(zmq::sockopt::curve_secretkey, buffer(secret.bytes()));
}

std::string refusal_text(int event, std::uint32_t value) {
  if (event == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH) return "the job's clients.allow does not list this key";
  const bool mismatch =
      event == ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL && value == ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH;
  if (mismatch) return "only one side uses keys";
  return "";
}

constexpr std::size_t kDescriptors = 64;

void accept_only(zmq::socket_t& socket, uid_t user) {
  if (zmq_setsockopt(socket.handle(), ZMQ_IPC_FILTER_UID, &user, sizeof user) != 0) throw zmq::error_t();
}

}  // namespace

bool is_tcp(const std::string& endpoint) { return endpoint.rfind(kTcp, 0) == 0; }

bool is_loopback(const std::string& endpoint) {
  const std::string_view host = host_part(endpoint);
  return host == "127.0.0.1" || host == "localhost" || host == "[::1]";
}

std::string bind_objection(const std::string& endpoint, InsecureLoopback loopback) {
  const std::string refusing = "refusing to listen on \"" + endpoint + "\"";
  if (host_part(endpoint).empty()) return refusing + ": expected tcp://HOST:PORT";
  if (!is_loopback(endpoint)) {
    return refusing +
           " without keys: anybody in the network could command the job; \"gradmonctl keygen DIR\" makes "
           "keys, GRADMON_KEYS=DIR names them";
  }
  if (loopback == InsecureLoopback::refused) {
    return refusing +
           " without keys: any user of this host could command the job; \"gradmonctl keygen DIR\" makes "
           "keys, GRADMON_KEYS=DIR names them; GRADMON_INSECURE_LOOPBACK=1 goes without";
  }
  return "";
}

struct Bus::Sockets {
  zmq::context_t context{1};
  std::unique_ptr<ZapHandler> zap;  // null: no keys
  zmq::socket_t talk;
  std::optional<ConnectionLimiter> limiter;  // listening end only
  std::optional<ConnectionMeter> meter;  // listening end only; its messages begin with the peer's routing id
  // Keep last: destroyed before the sockets that they watch.
  std::vector<std::unique_ptr<ConnectionWatch>> watches;
  std::vector<zmq::pollitem_t> poll_items() {  // of all sockets, `talk` first
    std::vector<zmq::pollitem_t> items = {{talk.handle(), 0, ZMQ_POLLIN, 0}};
    for (const auto& watch : watches) items.push_back(watch->poll_item());
    if (zap) items.push_back(zap->poll_item());
    return items;
  }
};

Bus::Bus(std::unique_ptr<Sockets> sockets) : sockets_(std::move(sockets)) {}

// The members of Sockets are destroyed in reverse order: the sockets before their context.
Bus::~Bus() = default;

Result<std::unique_ptr<Bus>> Bus::make_server(const std::string& endpoint, InsecureLoopback loopback,
                                              Limits limits, std::optional<ServerKeys> keys) {
  std::string objection = bind_objection(endpoint, loopback);
  if (!objection.empty() && !(keys && !host_part(endpoint).empty())) return tl::unexpected(objection);
  raise_descriptor_limit();
  if (std::string why = descriptor_shortage(kMinFreeDescriptorsToListen); !why.empty())
    return tl::unexpected(why);
  try {
    auto sockets = std::make_unique<Sockets>();
    if (keys) sockets->zap = std::make_unique<ZapHandler>(sockets->context, std::move(keys->clients));
    sockets->talk = zmq::socket_t(sockets->context, zmq::socket_type::router);
    sockets->limiter.emplace(std::min(limits.most_peers, free_descriptors() / 3 - kPendingPeers));
    bound(sockets->talk, on_the_wire(limits.most_bytes_in));
    sockets->talk.set(zmq::sockopt::router_mandatory, true);
    if (sockets->zap) guard(sockets->talk, keys->secret);
    sockets->talk.set(zmq::sockopt::ipv6, is_ipv6(endpoint));
    enable_keepalive(sockets->talk);
    bound_buffers(sockets->talk);
    sockets->meter.emplace(meter_limits(limits, sockets->zap != nullptr));
    sockets->watches.push_back(
        std::make_unique<ConnectionWatch>(sockets->context, sockets->talk, "talk",
                                          ZMQ_EVENT_LISTENING | ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED));
    std::unique_ptr<Bus> bus(new Bus(std::move(sockets)));
    bus->sockets_->talk.bind(endpoint);
    bus->endpoint_ = bus->sockets_->talk.get(zmq::sockopt::last_endpoint);
    bus->maintain_connections();
    return bus;
  } catch (const zmq::error_t& error) {
    return tl::unexpected("cannot listen on " + endpoint + ": " + error.what());
  }
}

Result<std::unique_ptr<Bus>> Bus::make_client(Limits limits, std::optional<ClientKeys> keys) {
  if (std::string why = descriptor_shortage(kMinFreeDescriptors); !why.empty()) return tl::unexpected(why);
  try {
    auto sockets = std::make_unique<Sockets>();
    sockets->talk = zmq::socket_t(sockets->context, zmq::socket_type::dealer);
    bound(sockets->talk, on_the_wire(limits.most_bytes_in));
    sockets->talk.set(zmq::sockopt::tcp_maxrt, kClientTcpTimeoutMs);
    sockets->talk.set(zmq::sockopt::connect_timeout, kConnectMs);
    sockets->watches.push_back(std::make_unique<ConnectionWatch>(
        sockets->context, sockets->talk, "talk",
        ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH |
            ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL));
    std::unique_ptr<Bus> bus(new Bus(std::move(sockets)));
    bus->keys_ = std::move(keys);
    return bus;
  } catch (const zmq::error_t& error) {
    return tl::unexpected(std::string("cannot open sockets: ") + error.what());
  }
}

Result<void> Bus::connect(const std::string& endpoint) {
  try {
    if (keys_) {
      uses_curve_ = true;
      sockets_->talk.set(zmq::sockopt::curve_serverkey, buffer(keys_->server_public));
      sockets_->talk.set(zmq::sockopt::curve_publickey, buffer(keys_->secret.public_key()));
      sockets_->talk.set(zmq::sockopt::curve_secretkey, buffer(keys_->secret.bytes()));
    } else if (!is_loopback(endpoint)) {
      return tl::unexpected("cannot connect to \"" + endpoint +
                            "\" without keys: GRADMON_KEYS=DIR names them");
    }
    sockets_->talk.set(zmq::sockopt::ipv6, is_ipv6(endpoint));
    sockets_->talk.connect(endpoint);
    keys_.reset();
    return {};
  } catch (const zmq::error_t& error) {
    return tl::unexpected("cannot connect to \"" + endpoint + "\": " + error.what());
  }
}

void Bus::allow(const KeyBytes& key, Client client) {
  if (sockets_->zap) sockets_->zap->allow(key, std::move(client));
}

void Bus::allow_only(AllowList clients) {
  if (sockets_->zap) sockets_->zap->allow_only(std::move(clients));
}

std::string Bus::refusals() const { return sockets_->zap ? sockets_->zap->refusals() : ""; }

bool Bus::send(const std::string& peer, const std::string& bytes) {
  try {
    if (sockets_->meter) {
      if (!sockets_->meter->may_send(peer, bytes.size())) return false;
      const auto to =
          sockets_->talk.send(zmq::buffer(peer), zmq::send_flags::sndmore | zmq::send_flags::dontwait);
      if (!to) return false;
    }
    return sockets_->talk.send(zmq::buffer(bytes), zmq::send_flags::dontwait).has_value();
  } catch (const zmq::error_t&) {  // EHOSTUNREACH: the peer has gone.
    return false;
  }
}

void Bus::add_to(std::vector<pollfd>& polled) const {
  for (const zmq::pollitem_t& item : sockets_->poll_items()) {
    int fd = -1;
    std::size_t size = sizeof fd;
    if (zmq_getsockopt(item.socket, ZMQ_FD, &fd, &size) == 0) polled.push_back({fd, POLLIN, 0});
  }
}

void Bus::maintain_connections() {
  const auto now = Clock::now();
  for (const auto& watch : sockets_->watches) {
    watch->take([&](int event, std::uint32_t value) {
      auto& limiter = sockets_->limiter;
      if (!limiter) return note_handshake(event, value);
      if (event == ZMQ_EVENT_LISTENING) limiter->add_listener(static_cast<int>(value));
      if (event == ZMQ_EVENT_ACCEPTED) {
        limiter->on_accept();
        sockets_->meter->on_accept(static_cast<int>(value), now);
      }
      if (event == ZMQ_EVENT_DISCONNECTED) {
        limiter->on_close();
        sockets_->meter->on_close(static_cast<int>(value));
      }
    });
  }
  if (sockets_->meter) sockets_->meter->check(now);
  if (sockets_->zap) sockets_->zap->answer();
}

void Bus::note_handshake(int event, std::uint32_t value) {
  if (event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) {
    refusal_.clear();
    hint_.clear();
  } else if (event == ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL) {
    hint_ = uses_curve_
                ? "connection closed: the job has another key than server.public, or uses no keys"
                : "connection closed: the job requires keys; give them with GRADMON_KEYS=DIR or --keys DIR";
  } else if (refusal_.empty()) {
    refusal_ = refusal_text(event, value);
  }
}

std::optional<Bus::Incoming> Bus::poll(milliseconds timeout, int wake_fd) {
  const auto deadline = Clock::now() + timeout;
  std::vector<zmq::pollitem_t> items = sockets_->poll_items();
  if (wake_fd >= 0) items.push_back({nullptr, wake_fd, ZMQ_POLLIN, 0});
  try {
    // Under load: takes messages without checking all sockets for each message.
    if (timeout.count() <= 0) {
      if (auto incoming = next()) return incoming;
    }
    for (auto left = timeout;; left = std::chrono::ceil<milliseconds>(deadline - Clock::now())) {
      zmq::poll(items.data(), items.size(), std::max(left, milliseconds{0}));
      const bool was_refused = !refusal_.empty();
      maintain_connections();
      if ((items.front().revents & ZMQ_POLLIN) != 0) return next();
      const bool woken = wake_fd >= 0 && items.back().revents != 0;
      const bool refused = !was_refused && !refusal_.empty();
      if (woken || refused || Clock::now() >= deadline) return {};
    }
  } catch (const zmq::error_t&) {  // EINTR: like a wake-up.
    return {};
  }
}

std::optional<Bus::Incoming> Bus::next() {
  Incoming incoming;
  zmq::message_t part;
  if (!sockets_->talk.recv(part, zmq::recv_flags::dontwait)) return {};
  if (sockets_->meter) {
    incoming.peer = part.to_string();
    if (!part.more() || !sockets_->talk.recv(part, zmq::recv_flags::dontwait))
      return Incoming{incoming.peer, "", false, false, "", Role::read};
  }
  incoming.whole = !part.more();
  if (incoming.whole) incoming.bytes = part.to_string();
  if (sockets_->zap) {
    const char* user_id = zmq_msg_gets(part.handle(), "User-Id");
    const Client* client = user_id != nullptr ? sockets_->zap->client(user_id) : nullptr;
    incoming.client = client != nullptr ? client->name : "?";
    incoming.role = client != nullptr ? client->role : Role::read;
    incoming.admitted = client != nullptr;
  }
  std::size_t frames = 1;
  std::size_t bytes = part.size();
  const int fd = sockets_->meter ? zmq_msg_get(part.handle(), ZMQ_SRCFD) : -1;
  while (part.more() && sockets_->talk.recv(part, zmq::recv_flags::dontwait)) {
    frames += 1;
    bytes += part.size();
  }
  if (!sockets_->meter || sockets_->meter->received(fd, incoming.peer, frames, bytes, Clock::now()))
    return incoming;
  return Incoming{incoming.peer, "", false, incoming.admitted, incoming.client, Role::read};
}

milliseconds Bus::longest_wait(milliseconds at_most) const {
  const milliseconds interval = sockets_->meter ? sockets_->meter->interval() : milliseconds{0};
  return interval.count() > 0 ? std::min(at_most, interval) : at_most;
}

// Binds the path itself, because libzmq unlinks any file at the path when it binds and when it closes, even
// the socket of a later process.
std::string publish_packets(int packets, const fs::path& path) try {
  if (std::string why = descriptor_shortage(kDescriptors); !why.empty()) return why;
  const auto listener = UnixListener::listen(path);
  if (!listener) return listener.error();
  zmq::context_t context{1};
  zmq::socket_t publisher{context, zmq::socket_type::pub};
  publisher.set(zmq::sockopt::linger, kLingerMs);
  publisher.set(zmq::sockopt::sndhwm, kMostUnread);
  publisher.set(zmq::sockopt::maxmsgsize, std::int64_t{kMostFromSubscriber});
  publisher.set(zmq::sockopt::handshake_ivl, kHandshakeMs);
  accept_only(publisher, ::geteuid());
  accept_only(publisher, 0);
  // libzmq closes this descriptor.
  publisher.set(zmq::sockopt::use_fd, ::fcntl(listener->fd(), F_DUPFD_CLOEXEC, 0));
  publisher.bind(ipc_endpoint(path));
  std::string packet(std::size_t{64} << 10U,
                     '\0');  // an alert with every byte of its texts escaped has 10 KiB
  while (true) {
    // While it polls, libzmq processes subscriptions.
    zmq_pollitem_t polled[] = {{nullptr, packets, ZMQ_POLLIN, 0}, {publisher.handle(), 0, ZMQ_POLLIN, 0}};
    if (zmq_poll(polled, 2, -1) < 0 && zmq_errno() != EINTR) return std::strerror(errno);
    const ssize_t size = ::recv(packets, packet.data(), packet.size(), MSG_DONTWAIT);
    if (size == 0) return "";
    if (size < 0 && errno != EAGAIN && errno != EINTR) return std::strerror(errno);
    const std::string_view bytes(packet.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
    const std::size_t topic = bytes.find('\0');
    if (topic == std::string_view::npos) continue;
    const auto flags = zmq::send_flags::dontwait;
    if (publisher.send(zmq::const_buffer(bytes.data(), topic), flags | zmq::send_flags::sndmore))
      static_cast<void>(
          publisher.send(zmq::const_buffer(&bytes[topic] + 1, bytes.size() - topic - 1), flags));
  }
} catch (const zmq::error_t& error) {
  return "cannot publish at " + path.string() + ": " + error.what();
}

}  // namespace gradmon
