// SPDX-License-Identifier: Apache-2.0
#include "runtime/launch_id.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <torch/version.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <future>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#if TORCH_VERSION_MAJOR >= 2
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#endif

#include "control/files/descriptor.h"
#include "control/signals_blocked.h"

namespace gradmon {
namespace {

struct Server {
  StoreAddress address;
  std::chrono::milliseconds patience{3000};
};

constexpr int kMostUnderWay = 4;
constexpr int kMostExchanges = 100;

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// Returns a connected, blocking socket; below 0: no connection, with errno set.
int connected_to(const addrinfo& address, std::chrono::milliseconds patience) {
  const int fd = socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  int error = connect(fd, address.ai_addr, address.ai_addrlen) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    pollfd waited{fd, POLLOUT, 0};
    socklen_t size = sizeof error;
    const bool answered = ::poll(&waited, 1, static_cast<int>(patience.count())) > 0;
    if (!answered || getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = ETIMEDOUT;
  }
  if (error == 0 && fcntl(fd, F_SETFL, 0) == 0) return fd;
  close(fd);
  errno = error;
  return -1;
}

// Throws std::runtime_error if it cannot connect. libtorch's own connect would retry until its timeout, and
// print a line to stderr each second.
Descriptor connected_to(const StoreAddress& address, std::chrono::milliseconds patience) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (error != 0) throw std::runtime_error(gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, freeaddrinfo);
  std::string reason;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    const int fd = connected_to(*one, patience);
    if (fd >= 0) return Descriptor(fd);
    reason = std::strerror(errno);
  }
  throw std::runtime_error(reason);
}

using Bytes = std::vector<std::uint8_t>;

#if TORCH_VERSION_MAJOR < 2
// The part of torch 1.13's TCPStore protocol that gradmon needs: numbers and lengths in host byte order,
// keys with a slash in front. torch's own client is not used: it has a thread that ends the process if
// the server resets the connection.
class StoreClient {
 public:
  explicit StoreClient(const Server& server) : fd_(connected_to(server.address, server.patience / 2)) {
    timeval patience{};
    patience.tv_sec = static_cast<time_t>(server.patience.count() / 1000);
    patience.tv_usec = static_cast<suseconds_t>(server.patience.count() % 1000 * 1000);
    for (const int direction : {SO_RCVTIMEO, SO_SNDTIMEO})
      setsockopt(fd_.get(), SOL_SOCKET, direction, &patience, sizeof patience);
  }

  Bytes compareSet(const std::string& key, const Bytes& expected, const Bytes& desired) {
    begin(kCompareSet, key);
    put_bytes(expected.data(), expected.size());
    put_bytes(desired.data(), desired.size());
    send_all();
    Bytes held(std::min<std::uint64_t>(get<std::uint64_t>(), kMostBytes));
    receive(held.data(), held.size());
    return held;
  }
  std::int64_t add(const std::string& key, std::int64_t number) {
    begin(kAdd, key);
    put(&number, sizeof number);
    send_all();
    return get<std::int64_t>();
  }

 private:
  static constexpr std::uint8_t kCompareSet = 1, kAdd = 3;  // of c10d's QueryType
  static constexpr std::uint64_t kMostBytes = 1 << 20;

  void begin(std::uint8_t query, const std::string& key) {
    request_.assign(1, query);
    const std::string whole = "/" + key;
    put_bytes(whole.data(), whole.size());
  }
  void put(const void* data, std::size_t size) {
    const auto* bytes = static_cast<const std::uint8_t*>(data);
    request_.insert(request_.end(), bytes, bytes + size);
  }
  void put_bytes(const void* data, std::uint64_t size) {
    put(&size, sizeof size);
    if (size > 0) put(data, size);
  }
  void send_all() {
    for (std::size_t sent = 0; sent < request_.size();) {
      const ssize_t now = ::send(fd_.get(), request_.data() + sent, request_.size() - sent, MSG_NOSIGNAL);
      if (now <= 0) throw std::runtime_error(std::strerror(errno));
      sent += static_cast<std::size_t>(now);
    }
  }
  void receive(void* data, std::size_t size) {
    for (std::size_t got = 0; got < size;) {
      const ssize_t now = ::recv(fd_.get(), static_cast<char*>(data) + got, size - got, 0);
      if (now <= 0) throw std::runtime_error(now == 0 ? "closed by its server" : std::strerror(errno));
      got += static_cast<std::size_t>(now);
    }
  }
  template <typename Number>
  Number get() {
    Number number{};
    receive(&number, sizeof number);
    return number;
  }

  const Descriptor fd_;
  Bytes request_;
};

std::unique_ptr<StoreClient> connect_to(const Server& server) {
  return std::make_unique<StoreClient>(server);
}
#else
using StoreClient = c10d::Store;

// Debian's torch 2.6 uses libuv by default but is built without it. Older versions have no such option.
template <typename Options>
auto refuse_libuv(Options& options, int) -> decltype(options.useLibUV, void()) {
  options.useLibUV = false;
}
template <typename Options>
void refuse_libuv(Options&, long) {}

c10::intrusive_ptr<StoreClient> connect_to(const Server& server) {
  connected_to(server.address, server.patience / 2);  // throws without a server
  c10d::TCPStoreOptions options;
  options.port = server.address.port;
  options.isServer = false;
  options.waitWorkers = false;
  // Whole seconds: torch 1.13 needed them.
  options.timeout = std::chrono::ceil<std::chrono::seconds>(server.patience);
  refuse_libuv(options, 0);
  return c10::make_intrusive<c10d::TCPStore>(server.address.host, options);
}
#endif

// libtorch's calls have no time limit, so each call runs on a separate thread and is abandoned after
// `patience`. At most four such threads may hang at a time; they are never joined. One thread.
class TorchStore : public SharedStore {
 public:
  explicit TorchStore(Server server) : server_(std::move(server)) {}

  tl::expected<std::int64_t, std::string> add(const std::string& key, std::int64_t number) override {
    return ask<std::int64_t>([=](StoreClient& store) { return store.add(key, number); });
  }

  tl::expected<std::string, std::string> put_once(const std::string& key, const std::string& value) override {
    auto held = compare_set(key, {}, Bytes(value.begin(), value.end()));
    if (!held) return tl::unexpected(held.error());
    return std::string(held->begin(), held->end());
  }

  // Does not use the store's set(): the server does not answer it, so its success is unknown.
  tl::expected<void, std::string> put(const std::string& key, const std::string& value) override {
    const Bytes desired(value.begin(), value.end());
    Bytes expected;
    for (int i = 0; i < kMostExchanges; ++i) {
      auto held = compare_set(key, expected, desired);
      if (!held) return tl::unexpected(held.error());
      if (*held == desired) return {};
      expected = std::move(*held);
    }
    return failed("others keep changing " + key);
  }

  // Side effect: an absent key gets an empty value, which put_once() treats as absent.
  tl::expected<std::optional<std::string>, std::string> get(const std::string& key) override {
    auto held = compare_set(key, {}, {});
    if (!held) return tl::unexpected(held.error());
    if (held->empty()) return std::nullopt;
    return std::string(held->begin(), held->end());
  }

 private:
  // Runs `call` with a new client on a new thread; returns its result or an error.
  template <class Answer, class Call>
  tl::expected<Answer, std::string> ask(Call call) {
    using Outcome = tl::expected<Answer, std::string>;
    if (*under_way_ >= kMostUnderWay) return failed("does not answer");
    const auto answer = std::make_shared<std::promise<Outcome>>();
    std::future<Outcome> awaited = answer->get_future();
    *under_way_ += 1;
    try {
      const SignalsBlocked blocked;
      std::thread([=, server = server_, under_way = under_way_] {
        Outcome got = tl::unexpected(std::string());
        try {
          got = call(*connect_to(server));
        } catch (const std::exception& error) {
          got = tl::unexpected(first_line(error.what()));
        }
        *under_way -= 1;
        answer->set_value(std::move(got));
      }).detach();
    } catch (const std::system_error& error) {
      *under_way_ -= 1;
      return failed(error.what());
    }
    const bool in_time = awaited.wait_for(server_.patience) == std::future_status::ready;
    Outcome got = in_time ? awaited.get() : Outcome(tl::unexpected(std::string("does not answer")));
    if (got) return got;
    return failed(got.error());
  }

  // If the value of `key` is `expected` (empty: or the key is absent), sets it to `desired`. Returns the
  // value that the key then has. Never waits for a key to appear.
  tl::expected<Bytes, std::string> compare_set(const std::string& key, const Bytes& expected,
                                               const Bytes& desired) {
    return ask<Bytes>([=](StoreClient& store) { return store.compareSet(key, expected, desired); });
  }

  tl::unexpected<std::string> failed(const std::string& why) const {
    const StoreAddress& address = server_.address;
    return tl::unexpected("the store at " + address.host + ":" + std::to_string(address.port) + ": " + why);
  }

  const Server server_;
  // Number of running calls; shared with their threads.
  const std::shared_ptr<std::atomic<int>> under_way_ = std::make_shared<std::atomic<int>>(0);
};

}  // namespace

std::shared_ptr<SharedStore> open_torch_store(const StoreAddress& address,
                                              std::chrono::milliseconds patience) {
  return std::make_shared<TorchStore>(Server{address, patience});
}

}  // namespace gradmon
