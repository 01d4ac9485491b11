// SPDX-License-Identifier: Apache-2.0
// The register in a real TCPStore that another process serves.
#include "runtime/torch_store.h"

#include <thread>

#include "control/debian_version.h"
#include "control/net/store_register.h"
#include "tests/runtime/store_server.h"
#include "tests/temporary_directory.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kShort{300};
constexpr milliseconds kLong{30'000};

TorchStore::Place place_of(const StoreServer& server, milliseconds patience = kLong) {
  return {server.host(), server.port(), patience};
}

StoreRegister register_in(const StoreServer& server, const std::string& epoch = "e",
                          milliseconds patience = kLong) {
  StoreRegister made(std::make_shared<TorchStore>(place_of(server, patience)), epoch);
  REQUIRE(eventually([&] { return made.create(epoch).has_value(); }));
  return made;
}

Verdict verdict(std::uint64_t revision, std::string author) {
  Verdict made;
  made.revision = Revision{revision};
  made.author = std::move(author);
  made.abort_reason = AbortReason::doubt;
  made.reason = "because";
  return made;
}

TEST_CASE("whoever writes first into the store wins and the later writer reads it") {
  const StoreServer server;
  auto first = register_in(server);
  auto second = register_in(server);
  REQUIRE(first.decide(verdict(1, "a"))->author == "a");
  const auto held = second.decide(verdict(1, "b"));
  REQUIRE(held->author == "a");
  REQUIRE(held->reason == "because");
  REQUIRE(second.decide(verdict(2, "b"))->author == "b");
  REQUIRE(first.decide(verdict(2, "a"))->author == "b");
}

TEST_CASE("of many writers into the store at once exactly one wins and all read the same") {
  const StoreServer server;
  constexpr int writers = 8;
  constexpr int revisions = 40;
  std::vector<std::vector<std::string>> read(writers);
  std::vector<std::thread> threads;
  register_in(server);
  for (int w = 0; w < writers; ++w) {
    threads.emplace_back([&, w] {
      StoreRegister own(std::make_shared<TorchStore>(place_of(server)), "e");
      for (int r = 1; r <= revisions; ++r) {
        const auto held = own.decide(verdict(static_cast<std::uint64_t>(r), "w" + std::to_string(w)));
        read[static_cast<std::size_t>(w)].push_back(held ? held->author : held.error());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& author : read[0]) REQUIRE(author.front() == 'w');
  for (int w = 1; w < writers; ++w) REQUIRE(read[static_cast<std::size_t>(w)] == read[0]);
}

TEST_CASE("a commit with a config of 1 MiB comes back whole from the store") {
  const StoreServer server;
  auto plan = std::make_shared<Plan>();
  plan->on = true;
  plan->config_text = std::string(1U << 20U, 'x');
  Verdict commit;
  commit.revision = Revision{3};
  commit.plan = plan;
  commit.effective = Step{77};
  REQUIRE(register_in(server).decide(commit)->commit());
  const auto held = register_in(server).decide(verdict(3, "late"));
  REQUIRE(held->effective == Step{77});
  REQUIRE(held->plan->config_text == plan->config_text);
}

TEST_CASE("two epochs in one store do not see each other") {
  const StoreServer server;
  auto one = register_in(server, "one");
  StoreRegister two(std::make_shared<TorchStore>(place_of(server)), "two");
  REQUIRE_FALSE(two.prove("one"));
  REQUIRE(two.create("two"));
  REQUIRE(one.prove("one"));
  REQUIRE(one.decide(verdict(1, "a"))->author == "a");
  REQUIRE(two.decide(verdict(1, "b"))->author == "b");
}

TEST_CASE("what nobody has put is absent and may still be put once") {
  const StoreServer server;
  TorchStore store(place_of(server));
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
  auto own = register_in(server, "e", kShort);
  REQUIRE(eventually([&] { return own.decide(verdict(1, "a")).has_value(); }));
  server.pause();
  // More often than calls may hang: a store that is gone for hours costs no more.
  for (int i = 0; i < 10; ++i) {
    const auto held = own.decide(verdict(2, "b"));
    REQUIRE_FALSE(held);
    REQUIRE(held.error().find("does not answer") != std::string::npos);
  }
  server.resume();
  std::string author;
  REQUIRE(eventually([&] {
    const auto held = own.decide(verdict(2, "c"));
    if (held) author = held->author;
    return held.has_value();
  }));
  // One that hung may have been done meanwhile.
  REQUIRE((author == "b" || author == "c"));
  REQUIRE(own.decide(verdict(2, "d"))->author == author);
  REQUIRE(own.decide(verdict(1, "d"))->author == "a");
}

TEST_CASE("a store whose server has died is an error") {
  StoreServer server;
  auto own = register_in(server);
  REQUIRE(own.decide(verdict(1, "a")));
  server.kill();
  REQUIRE_FALSE(own.decide(verdict(2, "a")));
  REQUIRE_FALSE(own.decide(verdict(3, "a")));
}

}  // namespace
}  // namespace gradmon
