// SPDX-License-Identifier: Apache-2.0
#include "control/link/hub_connection.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>

#include "control/debian_version.h"
#include "control/host/unix_socket.h"
#include "control/wire/messages.h"
#include "tests/support/temporary_directory.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using State = FrameStream::Read::State;
using Clock = HubConnection::Clock;

constexpr char kLaunch[] = "launch";

// A hub by hand, and a rank's connection to it.
struct HubByHand {
  const TemporaryDirectory scratch;
  const JobBases bases{scratch / "gradmon", scratch / "shared"};
  const JobDirectory directory = make_job_directory(kLaunch, bases).value();
  HubConnection connection{kLaunch, {bases, tl::unexpected(std::string("no program")), {}}, milliseconds{0}};
  Descriptor listener;

  void listen() {
    ::unlink(directory.socket().c_str());
    listener.reset(bind_unix(directory.socket()).value());
    REQUIRE(::listen(listener.get(), 10) == 0);
  }
  FrameStream accept() const {
    pollfd knocks{listener.get(), POLLIN, 0};
    REQUIRE(::poll(&knocks, 1, 5'000) == 1);
    return FrameStream(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC),
                       {kMaxFrameBytes, kMaxFrameBytes});
  }
};

TEST_CASE("a rank connects, speaks and hears") {
  HubByHand hub;
  hub.listen();
  REQUIRE(hub.connection.poll_connect(Clock::now()));
  CHECK(hub.connection.connected());
  CHECK(hub.connection.trouble().empty());
  FrameStream peer = hub.accept();
  REQUIRE(hub.connection.send("hello"));
  std::string heard;
  CHECK(eventually([&] {
    static_cast<void>(peer.read([&](std::string&& frame) { heard = frame; }));
    return heard == "hello";
  }));
  REQUIRE(peer.send("welcome"));
  CHECK(eventually([&] {
    return hub.connection.process_io([&](std::string&& frame) { heard = frame; }) && heard == "welcome";
  }));
}

TEST_CASE("what the hub said before it went is all heard, also where it is answered") {
  HubByHand hub;
  hub.listen();
  REQUIRE(hub.connection.poll_connect(Clock::now()));
  {
    FrameStream peer = hub.accept();
    for (int i = 0; i < 5; ++i) REQUIRE(peer.send("question " + std::to_string(i)));
  }
  std::vector<std::string> heard;
  int answered = 0;
  CHECK(eventually([&] {
    return !hub.connection.process_io([&](std::string&& frame) {
      heard.push_back(std::move(frame));
      if (hub.connection.send("answer")) ++answered;
    });
  }));
  CHECK(heard.size() == 5);
  CHECK(heard.back() == "question 4");
  CHECK(answered == 0);
  CHECK_FALSE(hub.connection.connected());
  CHECK(hub.connection.trouble() == "the peer closed the connection");
  hub.listen();
  CHECK(eventually([&] { return hub.connection.poll_connect(Clock::now()); }));
}

TEST_CASE("a Hello with a config of 1 MiB fits, and a hub that reads nothing costs frames and no connection") {
  HubByHand hub;
  hub.listen();
  REQUIRE(hub.connection.poll_connect(Clock::now()));
  FrameStream peer = hub.accept();
  const std::string large(std::size_t{1'100} << 10U, 'x');
  int sent = 0;
  while (sent < 100 && hub.connection.send(large)) ++sent;
  CHECK(sent >= 2);
  CHECK(sent < 100);
  CHECK(hub.connection.connected());
  CHECK(hub.connection.process_io([](std::string&&) {}));
  int heard = 0;
  CHECK(eventually([&] {
    static_cast<void>(hub.connection.process_io([](std::string&&) {}));
    CHECK(peer.read([&](std::string&& frame) { heard += frame == large ? 1 : 100; }).state == State::open);
    return heard == sent;
  }));
  CHECK(hub.connection.send("next"));
}

TEST_CASE("where no hub can be started the reason is told, and after a while there is no hope") {
  HubByHand hub;
  auto now = Clock::now();
  CHECK_FALSE(hub.connection.poll_connect(now));
  CHECK(hub.connection.trouble() == "no program");
  CHECK_FALSE(hub.connection.gave_up_starting());
  CHECK(eventually([&] {
    now += milliseconds{10};
    CHECK_FALSE(hub.connection.poll_connect(now));
    return hub.connection.gave_up_starting();
  }));
  // A hub may come all the same.
  hub.listen();
  CHECK(hub.connection.poll_connect(now + seconds(2)));
  CHECK_FALSE(hub.connection.gave_up_starting());
}

TEST_CASE("a hub of another user is refused, and the reason names both users") {
  if (geteuid() != 0) {
    WARN("needs root, to listen as another user");
    return;
  }
  HubByHand hub;
  hub.listener.reset(bind_unix(hub.directory.socket()).value());
  REQUIRE(seteuid(12'345) == 0);
  const int listening = ::listen(hub.listener.get(), 10);
  REQUIRE(seteuid(0) == 0);
  REQUIRE(listening == 0);
  CHECK_FALSE(hub.connection.poll_connect(Clock::now()));
  CHECK_FALSE(hub.connection.connected());
  CHECK(hub.connection.trouble() == hub.directory.socket().string() +
                                        ": the hub belongs to uid 12345; expected uid 0 (the current user)");
}

TEST_CASE("a job's directory that is removed between two connections is made anew") {
  HubByHand hub;
  std::filesystem::remove_all(hub.directory.path.parent_path());
  CHECK_FALSE(hub.connection.poll_connect(Clock::now()));
  CHECK(std::filesystem::exists(hub.directory.path));
}

TEST_CASE("a forked child does not hold the connection open") {
  HubByHand hub;
  hub.listen();
  std::optional<HubConnection> connection;
  connection.emplace(kLaunch, HubConnection::Settings{hub.bases, tl::unexpected(std::string("none")), {}},
                     milliseconds{0});
  REQUIRE(connection->poll_connect(Clock::now()));
  FrameStream peer = hub.accept();
  const pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  const auto state = [&] { return peer.read([](std::string&&) {}).state; };
  CHECK(state() == State::open);  // the child's closing its copy is no end
  connection.reset();
  CHECK(eventually([&] { return state() == State::end_of_file; }, seconds(5)));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace gradmon
