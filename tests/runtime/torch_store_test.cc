// SPDX-License-Identifier: Apache-2.0
// Tests with a real TCPStore that another process serves.
#include "runtime/launch_id.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <iterator>

#include "control/files/descriptor.h"
#include "tests/support/catch.h"
#include "tests/support/store_server.h"
#include "tests/support/temporary_directory.h"

namespace gradmon {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kShort{300};
constexpr milliseconds kLong{30'000};

std::shared_ptr<SharedStore> open_store(const StoreServer& server, milliseconds patience = kLong) {
  return open_torch_store({server.host(), server.port()}, patience);
}

TEST_CASE("an absent key can be put once and later replaced") {
  const StoreServer server;
  const auto store = open_store(server);
  REQUIRE(store->get("key"));
  REQUIRE_FALSE(*store->get("key"));
  REQUIRE(*store->put_once("key", "first") == "first");
  REQUIRE(*store->put_once("key", "second") == "first");
  REQUIRE(**store->get("key") == "first");
  REQUIRE(store->put("key", "third"));
  REQUIRE(**store->get("key") == "third");
}

TEST_CASE("a store where nobody listens is an error with its address") {
  // Bound, so that no other process gets the port, but not listening.
  const Descriptor bound(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  REQUIRE(::bind(bound.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0);
  REQUIRE(::getsockname(bound.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
  const std::uint16_t port = ntohs(address.sin_port);
  const auto store = open_torch_store({"127.0.0.1", port}, kLong);
  const auto got = store->get("key");
  REQUIRE_FALSE(got);
  REQUIRE(got.error() == "the store at 127.0.0.1:" + std::to_string(port) + ": Connection refused");
}

TEST_CASE("a store that hangs is an error and is used again when it resumes") {
  StoreServer server;
  const auto own = open_store(server, kShort);
  REQUIRE(eventually([&] { return own->put("key", "first").has_value(); }));
  server.pause();
  // The server may answer one more call before it stops.
  REQUIRE(eventually([&] { return !own->put("other", "x").has_value(); }));
  // More calls than may hang at a time: a store that hangs for hours costs no more threads.
  for (int i = 0; i < 10; ++i) {
    const auto put = own->put_once("later", "a");
    REQUIRE_FALSE(put);
    REQUIRE(put.error().find("does not answer") != std::string::npos);
  }
  server.resume();
  std::string held;
  REQUIRE(eventually([&] {
    const auto put = own->put_once("later", "b");
    if (put) held = *put;
    return put.has_value();
  }));
  // The server may have executed a call that hung.
  REQUIRE((held == "a" || held == "b"));
  REQUIRE(eventually([&] {
    const auto found = own->get("key");
    return found && *found == "first";
  }));
}

std::size_t entries_of(const char* directory) {
  const std::filesystem::directory_iterator entries(directory);
  return static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
}

// Reason: torch 1.13's own client has a thread that ends the process if the server resets the connection.
TEST_CASE("between calls a store has no thread and no connection") {
  const StoreServer server;
  const auto store = open_store(server);
  const std::size_t threads = entries_of("/proc/self/task");
  const std::size_t descriptors = entries_of("/proc/self/fd");
  REQUIRE(store->put("key", "first"));
  REQUIRE(eventually([&] {
    return entries_of("/proc/self/task") == threads && entries_of("/proc/self/fd") == descriptors;
  }));
}

TEST_CASE("a store whose server has died is an error") {
  StoreServer server;
  const auto own = open_store(server);
  REQUIRE(own->put("key", "first"));
  server.kill();
  REQUIRE_FALSE(own->put("key", "second"));
  REQUIRE_FALSE(own->get("key"));
}

}  // namespace
}  // namespace gradmon
