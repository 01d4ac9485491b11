// SPDX-License-Identifier: Apache-2.0
#include "control/hub/transport/stream_server.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <system_error>
#include <utility>

#include "control/files/file_access.h"
#include "control/host/unix_stream.h"

namespace gradmon {
namespace {

using Problem = tl::unexpected<std::string>;
using Accept = UnixListener::Accepted::Kind;

using std::chrono::milliseconds;

constexpr milliseconds kPauseWhenStuck{100};
constexpr std::size_t kMostAcceptsAtOnce = 64;
constexpr std::size_t kClientReads = std::size_t{16} << 10U;

// Removes the socket that an earlier hub left.
Result<void> remove_socket(const fs::path& path) {
  struct stat found {};
  if (::lstat(path.c_str(), &found) != 0) {
    if (errno == ENOENT) return {};
    return path_error(path, errno);
  }
  if (!S_ISSOCK(found.st_mode)) return Problem(path.string() + ": not a socket, expected one or nothing");
  if (found.st_uid != geteuid()) {
    return Problem(path.string() + ": belongs to uid " + std::to_string(found.st_uid) + ", expected uid " +
                   std::to_string(geteuid()) + ", who runs this");
  }
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return path_error(path, errno);
  return {};
}

}  // namespace

Result<UnixListener> UnixListener::listen(fs::path path) {
  UnixListener listener(std::move(path));
  if (const auto removed = remove_socket(listener.path_); !removed) return Problem(removed.error());
  if (const auto bound = listener.bind_again(); !bound) return Problem(bound.error());
  listener.open_spare();
  return listener;
}

UnixListener::~UnixListener() {
  if (socket_.valid() && at_path()) ::unlink(path_.c_str());
}

Result<void> UnixListener::bind_again() {
  const auto bound = bind_unix(path_);
  if (!bound) return Problem(bound.error());
  Descriptor socket(*bound);
  struct stat made {};
  if (::listen(socket.get(), SOMAXCONN) != 0 || ::lstat(path_.c_str(), &made) != 0) {
    const int code = errno;
    ::unlink(path_.c_str());
    return path_error(path_, code);
  }
  device_ = made.st_dev;
  inode_ = made.st_ino;
  socket_ = std::move(socket);
  return {};
}

bool UnixListener::at_path() const {
  struct stat found {};
  return ::lstat(path_.c_str(), &found) == 0 && found.st_dev == device_ && found.st_ino == inode_;
}

void UnixListener::open_spare() {
  if (!spare_.valid()) spare_.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

UnixListener::Accepted UnixListener::accept() {
  open_spare();
  Descriptor socket;
  do {
    socket.reset(::accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  } while (!socket.valid() && (errno == EINTR || errno == ECONNABORTED));
  if (!socket.valid()) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) return {};
    if (errno == EMFILE || errno == ENFILE) return turn_away();
    return {Accept::stuck, {}, "cannot accept: " + std::generic_category().message(errno)};
  }
  const auto uid = peer_uid(socket.get());
  if (!uid) return {Accept::refused, {}, uid.error()};
  if (*uid != geteuid() && *uid != 0)
    return {Accept::refused, {}, "uid " + std::to_string(*uid) + " is neither this user nor root"};
  return {Accept::peer, std::move(socket), ""};
}

UnixListener::Accepted UnixListener::turn_away() {
  const std::string reason = "no descriptor is left: " + std::generic_category().message(errno);
  spare_.reset();
  const bool accepted = Descriptor(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC)).valid();
  // accept4() fails with EMFILE even if no connection waits.
  const bool empty = !accepted && (errno == EAGAIN || errno == EWOULDBLOCK);
  open_spare();
  if (empty) return {};
  return {accepted ? Accept::refused : Accept::stuck, {}, reason};
}

struct StreamServer::Connection {
  Connection(int fd, const Limits& limits, Clock::time_point now)
      : stream(fd, of_a_client(limits.stream)), bucket(limits.client, now), accepted_at(now) {}

  static FrameStream::Limits of_a_client(FrameStream::Limits limits) {
    limits.max_bytes_per_read = kClientReads;
    return limits;
  }

  FrameStream stream;
  TokenBucket bucket;
  const Clock::time_point accepted_at;
  bool rank = false;
  // Used for clients only.
  std::deque<std::string> waiting;  // frames read, but not handed out yet
  FrameStream::Read last_read;
  std::uint64_t turns = 0;
  std::optional<Clock::time_point> unread_since;
};

Result<std::unique_ptr<StreamServer>> StreamServer::listen(const fs::path& path, Limits limits, Now now) {
  auto listener = UnixListener::listen(path);
  if (!listener) return Problem(listener.error());
  return std::unique_ptr<StreamServer>(new StreamServer(std::move(*listener), limits, std::move(now)));
}

StreamServer::StreamServer(UnixListener listener, Limits limits, Now now)
    : limits_(limits), now_(std::move(now)), listener_(std::move(listener)) {}

StreamServer::~StreamServer() = default;

void StreamServer::add_to(std::vector<pollfd>& polled) const {
  if (!listen_again_ || now_() >= *listen_again_) polled.push_back({listener_.fd(), POLLIN, 0});
  for (const auto& [peer, connection] : connections_) {
    const bool reads = connection->rank || (connection->waiting.empty() && next_turn(*connection) <= now_());
    const int events = (reads ? POLLIN : 0) | (connection->stream.wants_write() ? POLLOUT : 0);
    // Without an event to wait for, poll() would report a closed connection repeatedly.
    if (events != 0) polled.push_back({connection->stream.fd(), static_cast<short>(events), 0});
  }
}

// The time of the client's next turn; Clock::time_point::max(): it must read its answers first.
StreamServer::Clock::time_point StreamServer::next_turn(const Connection& client) const {
  return client.stream.wants_write() ? Clock::time_point::max() : client.bucket.next();
}

milliseconds StreamServer::longest_wait(milliseconds at_most) const {
  if (!ended_.empty()) return milliseconds(0);
  const Clock::time_point now = now_();
  Clock::time_point due = now + at_most;
  if (listen_again_ && *listen_again_ > now) due = std::min(due, *listen_again_);
  if (!unidentified_.empty())
    due = std::min(due, connections_.at(*unidentified_.begin())->accepted_at + limits_.first_frame_timeout);
  for (const Peer peer : clients_) {
    const Connection& client = *connections_.at(peer);
    if (client.unread_since) due = std::min(due, *client.unread_since + limits_.read_timeout);
    const Clock::time_point turn = next_turn(client);
    if (turn > now || !client.waiting.empty()) due = std::min(due, turn);
  }
  // Rounded up, so that poll() does not return too early.
  return std::max(milliseconds(0), std::chrono::ceil<milliseconds>(due - now));
}

void StreamServer::handle(const std::vector<pollfd>& polled, const Callbacks& callbacks) {
  bool pending_accept = false;
  std::set<Peer> readable;
  for (const pollfd& one : polled) {
    if (one.revents == 0) continue;
    if (one.fd == listener_.fd()) pending_accept = true;
    const auto found = by_fd_.find(one.fd);
    if (found == by_fd_.end()) continue;
    Connection& connection = *connections_.at(found->second);
    if (connection.rank) {
      serve_rank(found->second, one.revents, callbacks);
      continue;
    }
    connection.stream.flush();
    check_unread_bytes(connection);
    if ((one.revents & ~POLLOUT) != 0) readable.insert(found->second);
  }
  const bool all_served = serve_clients(readable, callbacks);
  cut_long_frames();
  // After the peers, because accepting may reuse the number of a descriptor closed above. And only when all
  // clients had their turn, so that a new connection does not displace a client that has sent a frame.
  if (pending_accept && all_served) accept_waiting();
  cut_idle();
  report_ended(callbacks);
}

void StreamServer::serve_rank(Peer peer, short events, const Callbacks& callbacks) {
  Connection& connection = *connections_.at(peer);  // end() keeps it until report_ended()
  if ((events & POLLOUT) != 0) connection.stream.flush();
  if ((events & ~POLLOUT) == 0) return;
  close_after(peer, connection.stream.read(
                        [&](std::string&& frame) { dispatch(peer, std::move(frame), callbacks); }));
}

void StreamServer::dispatch(Peer peer, std::string&& frame, const Callbacks& callbacks) {
  const auto found = connections_.find(peer);
  if (found == connections_.end()) return;
  if (found->second->bucket.try_take(now_())) return callbacks.on_frame(peer, std::move(frame));
  cut(peer, "more than " + std::to_string(limits_.rank.per_second) + " frames a second");
}

void StreamServer::close_after(Peer peer, const FrameStream::Read& read) {
  using State = FrameStream::Read::State;
  if (read.state == State::end_of_file) end(peer, Closed::by_peer, read.reason);
  if (read.state == State::broken) end(peer, Closed::cut, read.reason);  // No effect after cut().
}

// Starts with the client after the last turn's client. False: the time was up before all had a turn.
bool StreamServer::serve_clients(const std::set<Peer>& readable, const Callbacks& callbacks) {
  std::set<Peer> due = readable;
  const Clock::time_point began = now_();
  for (const Peer peer : clients_) {
    const Connection& client = *connections_.at(peer);
    if (!client.waiting.empty() && next_turn(client) <= began) due.insert(peer);
  }
  while (!due.empty()) {
    if (now_() - began >= limits_.client_time_slice && limits_.client_time_slice.count() > 0) return false;
    auto next = due.upper_bound(last_turn_);
    if (next == due.end()) next = due.begin();
    last_turn_ = *next;
    due.erase(next);
    if (connections_.count(last_turn_) != 0) serve_client(last_turn_, callbacks);
  }
  return true;
}

void StreamServer::serve_client(Peer peer, const Callbacks& callbacks) {
  Connection& client = *connections_.at(peer);  // end() keeps it until report_ended()
  if (client.waiting.empty()) {
    client.last_read =
        client.stream.read([&](std::string&& frame) { client.waiting.push_back(std::move(frame)); });
  }
  if (!client.waiting.empty()) {
    client.turns += 1;
    client.bucket.try_take(now_());
    do {
      std::string frame = std::move(client.waiting.front());
      client.waiting.pop_front();
      callbacks.on_frame(peer, std::move(frame));
    } while (client.rank && !client.waiting.empty() && connections_.count(peer) != 0);
    if (unidentified_.erase(peer) != 0) {
      if (clients_.size() >= limits_.most_clients) cut_one_client();
      clients_.insert(peer);
    }
  }
  if (client.waiting.empty()) close_after(peer, client.last_read);
}

void StreamServer::check_unread_bytes(Connection& client) const {
  if (!client.stream.wants_write()) {
    client.unread_since.reset();
  } else if (!client.unread_since) {
    client.unread_since = now_();
  }
}

void StreamServer::cut_one_client() {
  const auto goes_before = [this](Peer a, Peer b) {
    const Connection& one = *connections_.at(a);
    const Connection& other = *connections_.at(b);
    constexpr auto never = Clock::time_point::max();
    if (one.unread_since || other.unread_since)
      return one.unread_since.value_or(never) < other.unread_since.value_or(never);
    return one.turns > other.turns;
  };
  if (!clients_.empty())
    cut(*std::min_element(clients_.begin(), clients_.end(), goes_before),
        "disconnected to make room for another client");
}

void StreamServer::cut_long_frames() {
  std::set<Peer> partial;
  for (const auto* kind : {&unidentified_, &clients_}) {
    for (const Peer peer : *kind) {
      if (connections_.at(peer)->stream.partial_frame_length() > limits_.long_frame) partial.insert(peer);
    }
  }
  for (; partial.size() > limits_.most_long_frames; partial.erase(partial.begin()))
    cut(*partial.begin(), "too many clients are sending long frames");
}

// True if one more silent client can be accepted. Until then new connections wait in the kernel.
bool StreamServer::has_room() const {
  return unidentified_.size() < limits_.most_unidentified ||
         now_() - connections_.at(*unidentified_.begin())->accepted_at >= limits_.min_silence;
}

void StreamServer::accept_waiting() {
  listen_again_.reset();
  // At most half: a client whose first frame came with its connection is read before newer connections can
  // displace it.
  const std::size_t most = std::clamp<std::size_t>(limits_.most_unidentified / 2, 1, kMostAcceptsAtOnce);
  for (std::size_t i = 0; i < most; ++i) {
    if (!has_room()) {
      listen_again_ = connections_.at(*unidentified_.begin())->accepted_at + limits_.min_silence;
      return;
    }
    UnixListener::Accepted accepted = listener_.accept();
    if (accepted.kind == Accept::nobody) return;
    if (accepted.kind == Accept::peer) {
      welcome(std::move(accepted.socket));
    } else {
      refuse(std::move(accepted.reason));
    }
    if (accepted.kind == Accept::stuck) {
      listen_again_ = now_() + kPauseWhenStuck;
      return;
    }
  }
}

void StreamServer::welcome(Descriptor socket) {
  const auto full = [&] { return connections_.size() >= limits_.most_connections; };
  if (!unidentified_.empty() && (full() || unidentified_.size() >= limits_.most_unidentified)) {
    const std::size_t limit = full() ? limits_.most_connections : limits_.most_unidentified;
    cut(*unidentified_.begin(),
        "sent no frame before the limit of " + std::to_string(limit) + " connections was reached");
  }
  if (full()) cut_one_client();
  if (full()) {
    refuse("there are " + std::to_string(connections_.size()) + " connections, and no more are taken");
    return;
  }
  newest_ = Peer{newest_.value + 1};
  by_fd_.emplace(socket.get(), newest_);
  unidentified_.insert(newest_);
  connections_.emplace(newest_, std::make_unique<Connection>(socket.release(), limits_, now_()));
}

void StreamServer::refuse(std::string reason) {
  refused_.count += 1;
  refused_.last_reason = std::move(reason);
}

bool StreamServer::send(Peer peer, std::string_view frame) {
  const auto found = connections_.find(peer);
  if (found == connections_.end()) return false;
  FrameStream& stream = found->second->stream;
  const bool sent = stream.send(frame);
  if (!found->second->rank) check_unread_bytes(*found->second);
  // If the peer has gone, nothing is queued; its last frames and its end of file are still read.
  if (!sent && stream.wants_write()) {
    cut(peer, "reads too slowly: more than " + std::to_string(limits_.stream.max_queued_bytes) +
                  " bytes wait for it");
  }
  return sent;
}

void StreamServer::admit(Peer peer, std::size_t most_bytes_in) {
  const auto found = connections_.find(peer);
  if (found == connections_.end() || std::exchange(found->second->rank, true)) return;
  unidentified_.erase(peer);
  clients_.erase(peer);
  found->second->unread_since.reset();
  found->second->bucket.change(limits_.rank, now_());
  found->second->stream.set_read_limits(most_bytes_in, limits_.stream.max_bytes_per_read);
}

void StreamServer::cut(Peer peer, std::string reason) { end(peer, Closed::cut, std::move(reason)); }

void StreamServer::end(Peer peer, Closed how, std::string reason) {
  const auto found = connections_.find(peer);
  if (found == connections_.end()) return;
  unidentified_.erase(peer);
  clients_.erase(peer);
  by_fd_.erase(found->second->stream.fd());
  found->second->stream.close();
  ended_.push_back({peer, how, std::move(reason), std::move(found->second)});
  connections_.erase(found);
}

void StreamServer::cut_idle() {
  const Clock::time_point now = now_();
  while (!unidentified_.empty()) {
    const Peer oldest = *unidentified_.begin();
    if (now - connections_.at(oldest)->accepted_at < limits_.first_frame_timeout) break;
    cut(oldest, "sent no frame within " + std::to_string(limits_.first_frame_timeout.count()) + " ms");
  }
  std::vector<Peer> unread;
  for (const Peer peer : clients_) {
    const auto& since = connections_.at(peer)->unread_since;
    if (since && now - *since >= limits_.read_timeout) unread.push_back(peer);
  }
  for (const Peer peer : unread)
    cut(peer, "has not read its answer within " + std::to_string(limits_.read_timeout.count()) + " ms");
}

void StreamServer::report_ended(const Callbacks& callbacks) {
  while (!ended_.empty()) {  // on_closed may cut others.
    for (const Ended& one : std::exchange(ended_, {})) callbacks.on_closed(one.peer, one.how, one.reason);
  }
}

Result<StreamServer::Rebound> StreamServer::rebind() {
  if (listener_.at_path()) return Rebound::kept;
  accept_waiting();  // Clients that connected before the path vanished.
  if (const auto bound = listener_.bind_again(); !bound) return Problem(bound.error());
  listen_again_.reset();
  return Rebound::made;
}

}  // namespace gradmon
