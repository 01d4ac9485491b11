// SPDX-License-Identifier: Apache-2.0
// A real TCPStore that another process serves.
#include "runtime/job/torch_store.h"

#include <filesystem>
#include <iterator>

#include "control/debian_version.h"
#include "tests/support/store_server.h"
#include "tests/support/temporary_directory.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kShort{300};
constexpr milliseconds kLong{30'000};

TorchStore::Address address_of(const StoreServer& server, milliseconds patience = kLong) {
  return {server.host(), server.port(), patience};
}

TEST_CASE("what nobody has put is absent and may still be put once") {
  const StoreServer server;
  TorchStore store(address_of(server));
  REQUIRE(store.get("key"));
  REQUIRE_FALSE(*store.get("key"));
  REQUIRE(*store.put_once("key", "first") == "first");
  REQUIRE(*store.put_once("key", "second") == "first");
  REQUIRE(**store.get("key") == "first");
  REQUIRE(store.put("key", "third"));
  REQUIRE(**store.get("key") == "third");
}

TEST_CASE("a store where nobody listens is an error with its place") {
  std::uint16_t port = 0;
  {
    const StoreServer server;
    port = server.port();
  }
  TorchStore store({"127.0.0.1", port, kLong});
  const auto got = store.get("key");
  REQUIRE_FALSE(got);
  REQUIRE(got.error() == "the store at 127.0.0.1:" + std::to_string(port) + ": Connection refused");
}

TEST_CASE("a store that hangs is an error and is used again when it goes on") {
  StoreServer server;
  TorchStore own(address_of(server, kShort));
  REQUIRE(eventually([&] { return own.put("key", "first").has_value(); }));
  server.pause();
  REQUIRE(eventually([&] { return !own.put("other", "x").has_value(); }));  // It may take one more before it stands.
  // More often than calls may hang: a store that is gone for hours costs no more.
  for (int i = 0; i < 10; ++i) {
    const auto put = own.put_once("later", "a");
    REQUIRE_FALSE(put);
    REQUIRE(put.error().find("does not answer") != std::string::npos);
  }
  server.resume();
  std::string held;
  REQUIRE(eventually([&] {
    const auto put = own.put_once("later", "b");
    if (put) held = *put;
    return put.has_value();
  }));
  // One that hung may have been done meanwhile.
  REQUIRE((held == "a" || held == "b"));
  REQUIRE(**own.get("key") == "first");
}

std::size_t entries_of(const char* directory) {
  const std::filesystem::directory_iterator entries(directory);
  return static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
}

// libtorch 1.13's thread for it would end the process when the server's end resets the connection.
TEST_CASE("between calls there is no thread of a store and no connection to one") {
  const StoreServer server;
  TorchStore store(address_of(server));
  const std::size_t threads = entries_of("/proc/self/task");
  const std::size_t descriptors = entries_of("/proc/self/fd");
  REQUIRE(store.put("key", "first"));
  REQUIRE(eventually([&] {
    return entries_of("/proc/self/task") == threads && entries_of("/proc/self/fd") == descriptors;
  }));
}

TEST_CASE("a store whose server has died is an error") {
  StoreServer server;
  TorchStore own(address_of(server));
  REQUIRE(own.put("key", "first"));
  server.kill();
  REQUIRE_FALSE(own.put("key", "second"));
  REQUIRE_FALSE(own.get("key"));
}

}  // namespace
}  // namespace gradmon
