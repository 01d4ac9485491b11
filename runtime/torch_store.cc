// SPDX-License-Identifier: Apache-2.0
#include "runtime/torch_store.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <future>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "control/signals_blocked.h"

namespace gradmon {
namespace {

constexpr int kMostUnderWay = 4;
constexpr int kMostExchanges = 100;

// Debian's torch 2.6 asks for libuv and is built without; 1.13 has no such choice.
template <typename Options>
auto refuse_libuv(Options& options, int) -> decltype(options.useLibUV, void()) {
  options.useLibUV = false;
}
template <typename Options>
void refuse_libuv(Options&, long) {}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// "" where somebody listens at one of the addresses, else why not. libtorch's own
// attempt would go on for its whole time, with a line on stderr each second.
std::string objection_of(const addrinfo& address, std::chrono::milliseconds patience) {
  const int fd = socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return std::strerror(errno);
  int error = connect(fd, address.ai_addr, address.ai_addrlen) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    pollfd waited{fd, POLLOUT, 0};
    socklen_t size = sizeof error;
    const bool answered = ::poll(&waited, 1, static_cast<int>(patience.count())) > 0;
    if (!answered || getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = ETIMEDOUT;
  }
  close(fd);
  return error == 0 ? "" : std::strerror(error);
}

void require_listener(const std::string& host, std::uint16_t port, std::chrono::milliseconds patience) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) throw std::runtime_error(gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, freeaddrinfo);
  std::string objection;
  for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
    objection = objection_of(*address, patience);
    if (objection.empty()) return;
  }
  throw std::runtime_error(objection);
}

c10::intrusive_ptr<c10d::Store> connect_to(const TorchStore::Place& place) {
  require_listener(place.host, place.port, place.patience / 2);
  c10d::TCPStoreOptions options;
  options.port = place.port;
  options.isServer = false;
  options.waitWorkers = false;
  // 1.13 counts in whole seconds.
  options.timeout = std::chrono::ceil<std::chrono::seconds>(place.patience);
  refuse_libuv(options, 0);
  return c10::make_intrusive<c10d::TCPStore>(place.host, options);
}

}  // namespace

TorchStore::TorchStore(Place place)
    : place_(std::move(place)), under_way_(std::make_shared<std::atomic<int>>(0)) {}

tl::unexpected<std::string> TorchStore::failed(const std::string& why) const {
  return tl::unexpected("the store at " + place_.host + ":" + std::to_string(place_.port) + ": " + why);
}

template <class Answer, class Call>
tl::expected<Answer, std::string> TorchStore::ask(Call call) {
  using Outcome = tl::expected<Answer, std::string>;
  if (*under_way_ >= kMostUnderWay) return failed("does not answer");
  const auto answer = std::make_shared<std::promise<Outcome>>();
  std::future<Outcome> awaited = answer->get_future();
  *under_way_ += 1;
  try {
    const SignalsBlocked blocked;
    std::thread([=, place = place_, under_way = under_way_] {
      Outcome got = tl::unexpected(std::string());
      try {
        // Not kept: 1.13 has a thread for each TCPStore, which ends the process where the
        // server's end resets its connection, and else turns without a pause.
        got = call(*connect_to(place));
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
  const bool in_time = awaited.wait_for(place_.patience) == std::future_status::ready;
  Outcome got = in_time ? awaited.get() : Outcome(tl::unexpected(std::string("does not answer")));
  if (got) return got;
  return failed(got.error());
}

tl::expected<TorchStore::Bytes, std::string> TorchStore::compare_set(const std::string& key,
                                                                     const Bytes& expected,
                                                                     const Bytes& desired) {
  return ask<Bytes>([=](c10d::Store& store) { return store.compareSet(key, expected, desired); });
}

tl::expected<std::int64_t, std::string> TorchStore::add(const std::string& key, std::int64_t number) {
  return ask<std::int64_t>([=](c10d::Store& store) { return store.add(key, number); });
}

tl::expected<std::string, std::string> TorchStore::put_once(const std::string& key,
                                                            const std::string& value) {
  auto held = compare_set(key, {}, Bytes(value.begin(), value.end()));
  if (!held) return tl::unexpected(held.error());
  return std::string(held->begin(), held->end());
}

// Not set(): that is never answered, so that nobody knows whether it arrived.
tl::expected<void, std::string> TorchStore::put(const std::string& key, const std::string& value) {
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

// An absent key becomes an empty one, which put_once takes for absent.
tl::expected<std::optional<std::string>, std::string> TorchStore::get(const std::string& key) {
  auto held = compare_set(key, {}, {});
  if (!held) return tl::unexpected(held.error());
  if (held->empty()) return std::nullopt;
  return std::string(held->begin(), held->end());
}

}  // namespace gradmon
