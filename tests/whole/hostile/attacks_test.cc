// SPDX-License-Identifier: Apache-2.0
#include <poll.h>
#include <sys/types.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "control/hub/transport/curve_keys.h"
#include "control/wire/messages.h"
#include "tests/support/catch.h"
#include "tests/support/process_figures.h"
#include "tests/support/scale.h"
#include "tests/whole/hostile/attack.h"
#include "tests/whole/hostile/keyed_job.h"

namespace gradmon {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

#ifdef __SANITIZE_ADDRESS__
constexpr double kMostHubMib = 1e6;  // AddressSanitizer keeps freed memory
constexpr double kMostGrowthMib = 1e6;
#else
constexpr double kMostHubMib = 64;
constexpr double kMostGrowthMib = 4;  // training itself grows in its first steps
#endif

// The shortest of several times in which an honest client gets its answer: other
// work on this machine may delay any single answer.
milliseconds best_reply_time(const std::function<Status()>& ask) {
  milliseconds best{60'000};
  for (int i = 0; i < 8 && best > milliseconds(1000); ++i) {
    const auto asked = Clock::now();
    if (!ask().ranks.empty()) best = std::min(best, std::chrono::ceil<milliseconds>(Clock::now() - asked));
  }
  return best;
}

// Checks with Catch2 that an attack does not harm a job: call it during and after the attack.
class HarmCheck {
 public:
  // Before the attack: records the figures of rank 0, and its hub.
  explicit HarmCheck(const KeyedJob& job) : job_(job), rank0_(of(job.rank0())), hub_(job.hub()) {}

  // check_training(); the same hub runs, and is small; honest clients are served over
  // TCP and over the Unix socket.
  void check(const char* what) const {
    const milliseconds by_tcp = best_reply_time([&] { return job_.status(); });
    const milliseconds locally = best_reply_time([&] { return job_.local_status(); });
    const double resident = gradmon::resident_mib(hub_);
    WARN(what << ": honest clients are served within " << by_tcp.count() << " ms by TCP, " << locally.count()
              << " ms by the Unix socket; the hub has " << resident << " MiB, " << descriptors_of(hub_)
              << " descriptors");
    CHECK(by_tcp <= milliseconds(1000));
    CHECK(locally <= milliseconds(1000));
    CHECK(resident > 0);
    CHECK(resident <= kMostHubMib);
    CHECK(job_.hub() == hub_);
    check_training(what);
  }
  // Training goes on with the memory, descriptors and threads it had. For floods that
  // keep all clients out of TCP.
  void check_training(const char* what) const {
    const Figures now = of(job_.rank0());
    WARN(what << ": rank 0 has " << now.resident_mib << " MiB, " << now.resident_mib - rank0_.resident_mib
              << " more than before");
    CHECK(now.resident_mib - rank0_.resident_mib <= kMostGrowthMib);
    CHECK(now.descriptors == rank0_.descriptors);
    CHECK(now.threads == rank0_.threads);
    const auto step = [&] {
      const Status status = job_.local_status();
      return status.ranks.empty() ? -1 : status.ranks.front().step;
    };
    const std::int64_t seen = step();
    CHECK(eventually([&] { return step() > seen; }));
  }

 private:
  struct Figures {
    double resident_mib = 0;
    std::size_t descriptors = 0;
    std::size_t threads = 0;
  };
  static Figures of(pid_t process) {
    return {gradmon::resident_mib(process), descriptors_of(process), threads_of(process)};
  }

  const KeyedJob& job_;
  const Figures rank0_;
  const pid_t hub_;
};

// --- Attacks over loopback TCP on a training job, by a client with a key.

ClientKeys keys_of_alice(const KeyedJob& job) { return *read_operator_keys(job.keys_of("alice")); }

zmq::socket_t connected(zmq::context_t& context, const std::string& endpoint, const ClientKeys& keys) {
  const auto buffer = [](const KeyBytes& key) { return zmq::buffer(key.data(), key.size()); };
  zmq::socket_t socket(context, zmq::socket_type::dealer);
  socket.set(zmq::sockopt::linger, 0);
  socket.set(zmq::sockopt::rcvhwm, 1);
  socket.set(zmq::sockopt::rcvbuf, 4096);
  socket.set(zmq::sockopt::curve_serverkey, buffer(keys.server_public));
  socket.set(zmq::sockopt::curve_publickey, buffer(keys.secret.public_key()));
  socket.set(zmq::sockopt::curve_secretkey, buffer(keys.secret.bytes()));
  socket.connect(endpoint);
  return socket;
}

// Until killed: sends a command every `pause_ms`, or as fast as the hub takes it, and
// never reads an answer.
int flood_commands(const std::string& endpoint, const ClientKeys& keys, CommandVerb verb, int pause_ms) {
  zmq::context_t context;
  zmq::socket_t socket = connected(context, endpoint, keys);
  Command command;
  command.verb = verb;
  command.by = "nobody";
  for (std::uint64_t i = 0;; ++i) {
    command.request_id = std::to_string(i);
    const std::string bytes = encode(Frame(command));
    socket.send(zmq::buffer(bytes), zmq::send_flags::none);
    if (pause_ms > 0) ::poll(nullptr, 0, pause_ms);
  }
}

// Until killed: sends meaningless messages of 2 MiB, which is within the size limit.
int send_long_messages(const std::string& endpoint, const ClientKeys& keys) {
  zmq::context_t context;
  zmq::socket_t socket = connected(context, endpoint, keys);
  const std::string bytes(std::size_t{2} << 20U, '\xff');
  for (;;) socket.send(zmq::buffer(bytes), zmq::send_flags::none);
}

// A config near the size limit makes the answer that contains it long.
void write_long_config(KeyedJob& job) {
  write_text(job.job().config_path, R"({"dynamic_on": false, "wg_distribution": true, "note": ")" +
                                        std::string(900'000, 'x') + "\"}");
  Command config;
  config.verb = CommandVerb::config;
  REQUIRE(eventually([&] { return job.ask(config, job.keys()).config_text.size() > 900'000; }));
}

// The hub logs at this level what it did to a client.
constexpr const char* kLogAll = "export GRADMON_LOG=debug;";

// Waits for a line of the hub's log: without it the attack would not have taken place.
bool hub_has_logged(const KeyedJob& job, const std::string& text) {
  return eventually([&] { return job.hub_log().find(text) != std::string::npos; });
}

TEST_CASE("a client that never reads its answers is cut off and does not fill the hub's memory") {
  KeyedJob job(2, kLogAll);
  write_long_config(job);
  const ClientKeys keys = keys_of_alice(job);
  const HarmCheck harm(job);
  {
    Attack unread([&] { return flood_commands(job.endpoint(), keys, CommandVerb::config, 5); });
    for (int i = 0; i < 4; ++i) harm.check("a client that never reads");
    CHECK(unread.running());
    CHECK(hub_has_logged(job, "disconnected a network client: it does not read what it is sent"));
  }
  harm.check("after a client that never reads");
}

TEST_CASE("a client that floods the hub with commands is cut off and does not block honest clients") {
  KeyedJob job(2, kLogAll);
  const ClientKeys keys = keys_of_alice(job);
  const HarmCheck harm(job);
  Attack flood([&] { return flood_commands(job.endpoint(), keys, CommandVerb::status, 0); });
  for (int i = 0; i < 4; ++i) harm.check("a client that asks without end");
  CHECK(flood.running());
  CHECK(hub_has_logged(job, "disconnected a network client: "));
}

TEST_CASE("long meaningless messages of a client are dropped and do not block honest clients") {
  KeyedJob job(2);
  const ClientKeys keys = keys_of_alice(job);
  const HarmCheck harm(job);
  Attack flood([&] { return send_long_messages(job.endpoint(), keys); });
  for (int i = 0; i < 4; ++i) harm.check("a client that sends messages of 2 MiB");
  CHECK(flood.running());
  CHECK(hub_has_logged(job, " from the network dropped; the last: "));
}

TEST_CASE("a message of a thousand frames is dropped and counted") {
  const KeyedJob job(1);
  zmq::context_t context;
  zmq::socket_t socket = connected(context, job.endpoint(), keys_of_alice(job));
  socket.set(zmq::sockopt::linger, 1000);
  for (int sent = 1; sent <= 3 * 1000; ++sent)
    socket.send(zmq::str_buffer("gradmon"),
                sent % 1000 != 0 ? zmq::send_flags::sndmore : zmq::send_flags::none);
  CHECK(eventually([&] {
    const std::vector<std::string> lines = job.status().warnings;
    return std::count(lines.begin(), lines.end(),
                      "3 messages from the network dropped; the last: a message of several frames") == 1;
  }));
}

// --- Attacks over loopback TCP on a training job, by processes without a key.

constexpr std::uint64_t kMib = std::uint64_t{1} << 20U;
constexpr std::uint64_t kGib = std::uint64_t{1} << 30U;

TEST_CASE("500 idle peers that always reconnect disturb neither training nor honest clients") {
  const KeyedJob job(2);
  const HarmCheck harm(job);
  {
    // More than 500: at any time some are closed and not yet connected again.
    Attack idle([&] { return hold_idle_peers(job.port(), 750); });
    REQUIRE(eventually([&] { return descriptors_of(job.hub()) >= 500; }));
    harm.check("500 idle peers");
    CHECK(idle.running());
  }
  REQUIRE(eventually([&] { return descriptors_of(job.hub()) < 100; }));
  const Status after = job.status();
  REQUIRE(after.ranks.size() == 2);
  CHECK(after.ranks[1].state == "idle");
}

TEST_CASE("a huge frame is cut off before 64 MiB of it are sent") {
  const KeyedJob job(1);
  const HarmCheck harm(job);
  CHECK(Attack([&] { return send_frame(job.port(), 64 * kMib + 1, 64 * kMib); }).wait() == 0);
  CHECK(Attack([&] { return send_frame(job.port(), 8 * kGib, 64 * kMib); }).wait() == 0);
  harm.check("a frame of 64 MiB, a header of 8 GiB");
}

TEST_CASE("unfinished frames of the greatest allowed length do not fill the hub's memory") {
  const KeyedJob job(1);
  const HarmCheck harm(job);
  {
    const std::size_t before = descriptors_of(job.hub());
    Attack frames([&] { return hold_unfinished_frames(job.port(), 200, 2 * kMib); });
    REQUIRE(eventually([&] { return descriptors_of(job.hub()) >= before + 5; }));
    for (int i = 0; i < 4; ++i) harm.check("200 peers with 2 MiB of one frame each");
    CHECK(frames.running());
  }
  harm.check("after 200 peers with 2 MiB of one frame each");
}

TEST_CASE("thousands of connections with random bytes harm neither training nor honest clients") {
  const int connections = scaled(2'000, 10'000);
  const KeyedJob job(1);
  const HarmCheck harm(job);
  constexpr int attackers = 4;
  const int each = connections / attackers;
  std::vector<std::unique_ptr<Attack>> attacks;
  for (unsigned seed = 0; seed < attackers; ++seed)
    attacks.push_back(std::make_unique<Attack>([&, seed] { return send_noise(job.port(), each, seed); }));
  harm.check("during connections of noise");
  for (const auto& attack : attacks) CHECK(attack->wait() == 0);
  harm.check("after connections of noise");
}

TEST_CASE("a flood of peers leaves the hub free descriptors and the ranks their connections") {
  // In this order: a hard limit below the soft one is refused.
  const KeyedJob job(2, "ulimit -Sn 256; ulimit -Hn 1200;");
  CHECK(descriptor_limit_of(job.rank0()) == 256);  // The hub raises its own limit only.
  REQUIRE(descriptor_limit_of(job.hub()) == 1200);
  const HarmCheck harm(job);
  const std::int64_t before = job.step();
  std::size_t most = 0;
  {
    std::vector<std::unique_ptr<Attack>> floods;
    for (int i = 0; i < 4; ++i)
      floods.push_back(std::make_unique<Attack>([&] { return hold_idle_peers(job.port(), 500); }));
    const pid_t hub = job.hub();
    const auto until = Clock::now() + std::chrono::seconds(6);
    while (Clock::now() < until) most = std::max(most, descriptors_of(hub));
    harm.check_training("a flood of 2,000 peers");
    CHECK(job.local_status().ranks.size() == 2);  // Ranks and gradmonctl use the Unix socket.
  }
  WARN("a flood of 2,000 peers: at most " << most << " of 1200 descriptors in use");
  CHECK(job.hub_log().find("new connections are refused") != std::string::npos);
  CHECK(most < 1200 - 64);
  CHECK(eventually([&] { return job.step() > before; }));
  const Status after = job.status();
  REQUIRE(after.ranks.size() == 2);
  CHECK(after.ranks[1].state == "idle");
  CHECK(after.ranks[1].last_seen_ms < 5000);
}

}  // namespace
}  // namespace gradmon
