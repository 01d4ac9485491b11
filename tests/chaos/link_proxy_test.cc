// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/link_proxy.h"

#include "control/debian_version.h"
#include "control/net/bus.h"
#include "tests/temporary_directory.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using std::chrono::milliseconds;

// A rank and rank 0 with one link between them.
struct Ends {
  TemporaryDirectory directory;
  std::string upstream = (directory / "s").string();
  std::unique_ptr<Bus> rank0 = std::move(*Bus::listen("ipc://" + upstream, "ipc://" + upstream + ".state",
                                                      InsecureLoopback::refused, {1 << 16}));
  LinkProxy proxy{upstream, 2};
  std::unique_ptr<Bus> rank = std::move(*Bus::ask({1 << 16}));

  Ends() { REQUIRE(rank->connect(proxy.endpoint(1))); }

  // "" if nothing comes.
  static std::string next(Bus& bus, std::string* peer = nullptr, milliseconds within = milliseconds{5000}) {
    const auto came = bus.poll(within, -1);
    if (came && peer != nullptr) *peer = came->peer;
    return came ? came->bytes : "";
  }
  std::string meet() {
    std::string peer;
    rank->send("", "hello");
    REQUIRE(next(*rank0, &peer) == "hello");
    return peer;
  }
};

TEST_CASE("what passes a link arrives whole and in order both ways") {
  Ends ends;
  const std::string peer = ends.meet();
  ends.proxy.set(1, {milliseconds{0}, milliseconds{20}, false, false});
  for (int i = 0; i < 20; ++i) {
    const std::string message = std::to_string(i) + std::string(5000, 'x');
    REQUIRE(ends.rank->send("", message));
    REQUIRE(ends.rank0->send(peer, message));
  }
  for (int i = 0; i < 20; ++i) {
    const std::string message = std::to_string(i) + std::string(5000, 'x');
    REQUIRE(Ends::next(*ends.rank0) == message);
    REQUIRE(Ends::next(*ends.rank) == message);
  }
}

TEST_CASE("a link that is cut one way still works the other way and gives what it held once restored") {
  Ends ends;
  const std::string peer = ends.meet();
  ends.proxy.set(1, {milliseconds{0}, milliseconds{0}, true, false});
  REQUIRE(ends.rank->send("", "up"));
  REQUIRE(ends.rank0->send(peer, "down"));
  REQUIRE(Ends::next(*ends.rank) == "down");
  REQUIRE(Ends::next(*ends.rank0, nullptr, milliseconds{50}).empty());
  ends.proxy.set(1, {});
  REQUIRE(Ends::next(*ends.rank0) == "up");
}

TEST_CASE("what a dropped connection held is lost and the next one works") {
  Ends ends;
  ends.meet();
  ends.proxy.set(1, {milliseconds{0}, milliseconds{0}, true, true});
  REQUIRE(ends.rank->send("", "lost"));
  ends.proxy.drop(1);
  ends.proxy.set(1, {});
  std::string got;
  REQUIRE(eventually([&] {
    ends.rank->send("", "again");
    got = Ends::next(*ends.rank0, nullptr, milliseconds{100});
    return !got.empty();
  }));
  REQUIRE(got == "again");
}

}  // namespace
}  // namespace gradmon
