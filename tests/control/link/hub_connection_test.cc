// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <stdexcept>

#include "control/host/frame_stream.h"
#include "control/link/hub_connection.h"
#include "control/wire/messages.h"
#include "tests/support/catch.h"
#include "tests/support/is_root.h"
#include "tests/support/temporary_directory.h"

namespace gradmon {

// A forked child that only waits, as a data loader's worker would. It ends with this object, or with the
// thread that created it. The constructor throws if fork(2) fails: kill(-1) would end every process.
class PausedChild {
 public:
  PausedChild() : pid_(::fork()) {
    if (pid_ < 0) throw std::runtime_error("fork() has failed");
    if (pid_ > 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) ::pause();
  }
  ~PausedChild() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  PausedChild(const PausedChild&) = delete;
  PausedChild& operator=(const PausedChild&) = delete;

 private:
  const pid_t pid_;
};

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using State = FrameStream::Read::State;
using Clock = HubConnection::Clock;

constexpr char kLaunch[] = "launch";

constexpr auto kNotBroken = [] { FAIL_CHECK("the stream is broken"); };

// A program that ends when the test lets it, and does not become a hub.
struct PausedProgram {
  PausedProgram(const TemporaryDirectory& scratch, const JobDirectory& directory)
      : path(scratch / "gradmon-hub"), fifo(directory.path / "go") {
    write_text(path, "#!/bin/sh\nread line < \"$1/go\"\n");
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
    resume.reset(::open(fifo.c_str(), O_RDWR | O_CLOEXEC));
  }
  void let_end() const { REQUIRE(::write(resume.get(), "\n", 1) == 1); }

  const std::filesystem::path path;
  const std::filesystem::path fifo;
  Descriptor resume;
};

// A hub that the test plays, and a rank's connection to it.
struct HubFixture {
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
    pollfd incoming{listener.get(), POLLIN, 0};
    REQUIRE(::poll(&incoming, 1, 60'000) == 1);
    const int fd = ::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    REQUIRE(fd >= 0);
    return FrameStream(fd, {kMaxFrameBytes, kMaxFrameBytes});
  }
  // Listens, and returns the hub's end of the rank's connection.
  FrameStream connect() {
    listen();
    REQUIRE(connection.poll_connect(Clock::now()));
    return accept();
  }
  // The hub closes the rank's newest connection, and the rank sees that.
  void close(HubConnection& of_rank) const {
    { const FrameStream closed = accept(); }
    REQUIRE(eventually([&] { return !of_rank.process_io([](std::string&&) {}, kNotBroken); }));
  }
};

TEST_CASE("a rank connects and sends and receives frames") {
  HubFixture hub;
  FrameStream peer = hub.connect();
  CHECK(hub.connection.connected());
  CHECK(hub.connection.trouble().empty());
  REQUIRE(hub.connection.send("hello"));
  std::string heard;
  CHECK(eventually([&] {
    static_cast<void>(peer.read([&](std::string&& frame) { heard = frame; }));
    return heard == "hello";
  }));
  REQUIRE(peer.send("welcome"));
  CHECK(eventually([&] {
    return hub.connection.process_io([&](std::string&& frame) { heard = frame; }, kNotBroken) &&
           heard == "welcome";
  }));
}

TEST_CASE("all frames that the hub sent before it closed arrive even if the rank answers each") {
  HubFixture hub;
  {
    FrameStream peer = hub.connect();
    for (int i = 0; i < 5; ++i) REQUIRE(peer.send("question " + std::to_string(i)));
  }
  std::vector<std::string> heard;
  int answered = 0;
  CHECK(eventually([&] {
    return !hub.connection.process_io(
        [&](std::string&& frame) {
          heard.push_back(std::move(frame));
          if (hub.connection.send("answer")) ++answered;
        },
        kNotBroken);
  }));
  CHECK(heard.size() == 5);
  CHECK(heard.back() == "question 4");
  CHECK(answered == 0);
  CHECK_FALSE(hub.connection.connected());
  CHECK(hub.connection.trouble() == "the peer closed the connection");
  hub.listen();
  CHECK(eventually([&] { return hub.connection.poll_connect(Clock::now()); }));
}

TEST_CASE("a rank is told that it must close a broken stream while the hub still sees it open") {
  HubFixture hub;
  FrameStream peer = hub.connect();
  constexpr std::array<char, 4> empty_frame{};
  REQUIRE(::write(peer.fd(), empty_frame.data(), empty_frame.size()) == 4);
  int told = 0;
  const auto state = [&] { return peer.read([](std::string&&) {}).state; };
  CHECK(eventually([&] {
    return !hub.connection.process_io([](std::string&&) {},
                                      [&] {
                                        ++told;
                                        CHECK(state() == State::open);
                                      });
  }));
  CHECK(told == 1);
  CHECK(hub.connection.trouble() == "received an empty frame");
  CHECK(eventually([&] { return state() == State::end_of_file; }));
}

TEST_CASE("a Hello with a config of 1 MiB fits and a hub that reads nothing loses frames but no connection") {
  HubFixture hub;
  FrameStream peer = hub.connect();
  const std::string large(std::size_t{1'100} << 10U, 'x');
  int sent = 0;
  while (sent < 100 && hub.connection.send(large)) ++sent;
  CHECK(sent >= 2);
  CHECK(sent < 100);
  CHECK(hub.connection.connected());
  CHECK(hub.connection.process_io([](std::string&&) {}, kNotBroken));
  int heard = 0;
  CHECK(eventually([&] {
    static_cast<void>(hub.connection.process_io([](std::string&&) {}, kNotBroken));
    CHECK(peer.read([&](std::string&& frame) { heard += frame == large ? 1 : 100; }).state == State::open);
    return heard == sent;
  }));
  CHECK(hub.connection.send("next"));
}

TEST_CASE("a hub that cannot be started is given up with a reason but is still found when it comes") {
  HubFixture hub;
  auto now = Clock::now();
  CHECK_FALSE(hub.connection.poll_connect(now));
  CHECK(hub.connection.trouble() == "no program");
  CHECK_FALSE(hub.connection.gave_up_starting());
  CHECK(eventually([&] {
    now += milliseconds{10};
    CHECK_FALSE(hub.connection.poll_connect(now));
    return hub.connection.gave_up_starting();
  }));
  // Another process may start a hub later.
  hub.listen();
  CHECK(hub.connection.poll_connect(now + seconds(2)));
  CHECK_FALSE(hub.connection.gave_up_starting());
}

TEST_CASE("the start of a hub blocks nobody and another rank's hub is found meanwhile") {
  HubFixture hub;
  const PausedProgram program(hub.scratch, hub.directory);
  HubConnection connection(kLaunch, {hub.bases, program.path, hub_environment()}, milliseconds{0});
  const auto now = Clock::now();
  CHECK_FALSE(connection.poll_connect(now));
  CHECK(connection.trouble() == program.path.string() + ": is being started");
  CHECK_FALSE(connection.gave_up_starting());
  hub.listen();
  CHECK(connection.poll_connect(now + seconds(1)));
  hub.close(connection);
  hub.listener.reset();
  const std::string loss = connection.trouble();
  // At `now` only the end of the start makes a try due, and no second start is due.
  program.let_end();
  CHECK(eventually([&] {
    CHECK_FALSE(connection.poll_connect(now));
    return connection.trouble() != loss;
  }));
}

TEST_CASE("a start that hangs is given up with a reason and the hub is still found when it comes") {
  HubFixture hub;
  const PausedProgram program(hub.scratch, hub.directory);
  HubConnection connection(kLaunch, {hub.bases, program.path, hub_environment()}, milliseconds{0});
  const auto now = Clock::now();
  CHECK_FALSE(connection.poll_connect(now));
  CHECK_FALSE(connection.poll_connect(now + seconds(6)));
  CHECK(connection.gave_up_starting());
  CHECK(connection.trouble() ==
        program.path.string() + ": has not started within 5 s: its disk may not answer");
  program.let_end();
  CHECK(eventually([&] {
    CHECK_FALSE(connection.poll_connect(now));
    return !connection.gave_up_starting();
  }));
  hub.listen();
  CHECK(connection.poll_connect(now + seconds(7)));
}

// Connects, and lets the hub close the connection.
void lose_a_connection(HubFixture& hub, Clock::time_point& now) {
  REQUIRE(eventually([&] { return hub.connection.poll_connect(now += seconds(2)); }));
  hub.close(hub.connection);
}

TEST_CASE("connections that are lost before a Welcome do not make the next start of a hub earlier") {
  HubFixture hub;
  auto now = Clock::now();
  for (int starts = 0; starts < 3; ++starts) CHECK_FALSE(hub.connection.poll_connect(now += seconds(2)));
  CHECK_FALSE(hub.connection.gave_up_starting());
  hub.listen();
  lose_a_connection(hub, now);
  hub.listener.reset();
  now += seconds(2);
  CHECK_FALSE(hub.connection.poll_connect(now));  // the fourth start
  CHECK(hub.connection.gave_up_starting());
  hub.listen();
  REQUIRE(hub.connection.poll_connect(now + seconds(2)));
  hub.connection.welcomed();
  hub.close(hub.connection);
  CHECK_FALSE(hub.connection.gave_up_starting());
}

TEST_CASE("the third loss of a connection within ten seconds is said once") {
  HubFixture hub;
  hub.listen();
  auto now = Clock::now();
  std::vector<bool> failing;
  for (int losses = 0; losses < 6; ++losses) {
    lose_a_connection(hub, now);
    failing.push_back(hub.connection.keeps_failing());
  }
  CHECK(failing == std::vector<bool>{false, false, true, false, false, true});
}

TEST_CASE("a hub of another user is refused and the error names both users") {
  if (!is_root("listen as another user")) return;
  HubFixture hub;
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

TEST_CASE("a hub of this job in another base is found before one is started") {
  HubFixture hub;
  const JobDirectory other = make_job_directory(kLaunch, {{}, hub.bases.dev_shm}).value();
  const Descriptor listener(bind_unix(other.socket()).value());
  REQUIRE(::listen(listener.get(), 10) == 0);
  CHECK(hub.connection.poll_connect(Clock::now()));
  CHECK(hub.connection.connected());
}

TEST_CASE("a job directory that is removed between two connections is created again") {
  HubFixture hub;
  std::filesystem::remove_all(hub.directory.path.parent_path());
  CHECK_FALSE(hub.connection.poll_connect(Clock::now()));
  CHECK(std::filesystem::exists(hub.directory.path));
}

TEST_CASE("a forked child does not hold the connection open") {
  HubFixture hub;
  hub.listen();
  std::optional<HubConnection> connection;
  connection.emplace(kLaunch, HubConnection::Settings{hub.bases, tl::unexpected(std::string("none")), {}},
                     milliseconds{0});
  REQUIRE(connection->poll_connect(Clock::now()));
  FrameStream peer = hub.accept();
  const PausedChild child;
  const auto state = [&] { return peer.read([](std::string&&) {}).state; };
  CHECK(state() == State::open);  // the child's close does not end the stream
  connection.reset();
  CHECK(eventually([&] { return state() == State::end_of_file; }));
}

}  // namespace
}  // namespace gradmon
