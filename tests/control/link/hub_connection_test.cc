// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <sstream>
#include <stdexcept>

#include "control/files/descriptor.h"
#include "control/host/unix_stream.h"
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

const EnvironmentLookup kNothingSet = [](const char*) { return std::nullopt; };

EnvironmentLookup environment_with_hub(const std::string& value) {
  return [value](const char* name) {
    return std::string(name) == "GRADMON_HUB" ? std::optional(value) : std::nullopt;
  };
}

void write_program(const fs::path& path, const std::string& script) {
  fs::create_directories(path.parent_path());
  write_text(path, "#!/bin/sh\n" + script);
  fs::permissions(path, fs::perms::owner_all | fs::perms::group_exec | fs::perms::others_exec |
                            fs::perms::group_read | fs::perms::others_read);
}

// A hub that is a shell script. It writes its results into `directory`, its first argument.
struct ScriptedHub {
  explicit ScriptedHub(const std::string& script) {
    fs::permissions(directory.path(), fs::perms::all);
    write_program(directory / "gradmon-hub", script);
    command.program = directory / "gradmon-hub";
    command.directory.path = directory.path();
    command.environment = hub_environment();
    command.most_wait = std::chrono::seconds(60);  // A script starts further programs.
  }

  TemporaryDirectory directory;
  HubCommand command;
};

// Reaps none.
bool has_children() {
  siginfo_t info{};
  return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != -1 || errno != ECHILD;
}

// Runs `body` in a child process. The exit status, or 1000 + the signal that ended it.
int exit_status_in_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  REQUIRE(child > 0);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1'000 + WTERMSIG(status);
}

int fails_with(const HubCommand& command, const std::string& words) {
  const auto started = start_hub(command);
  return !started && started.error().find(words) != std::string::npos ? 0 : 1;
}

std::string line_of(const std::string& text, const std::string& key) {
  const std::size_t at = text.find(key);
  return at == std::string::npos ? "" : text.substr(at, text.find('\n', at) - at);
}

TEST_CASE(
    "the hub program is searched beside this code then in .. then in ../bin then in ../lib then by "
    "GRADMON_HUB") {
  const TemporaryDirectory root;
  const fs::path object = root / "lib64/gradmon.so";
  write_program(root / "elsewhere/hub", "");
  const auto elsewhere = environment_with_hub(root / "elsewhere/hub");
  CHECK(find_hub_program(elsewhere, object).value() == root / "elsewhere/hub");
  CHECK(find_hub_program(elsewhere, {}).value() == root / "elsewhere/hub");
  for (const std::string file : {"lib/gradmon-hub", "bin/gradmon-hub", "gradmon-hub", "lib64/gradmon-hub"}) {
    write_program(root / file, "");
    CHECK(find_hub_program(elsewhere, object).value() == root / file);
  }
}

TEST_CASE("files that are no program are skipped and the error names every path tried") {
  const TemporaryDirectory root;
  const fs::path object = root / "lib/gradmon.so";
  fs::create_directories(root / "lib/gradmon-hub");
  fs::create_directories(root / "bin");
  write_text(root / "bin/gradmon-hub", "not executable");
  const std::string tried = "gradmon-hub not found: tried " + (root / "lib/gradmon-hub").string() + ", " +
                            (root / "gradmon-hub").string() + ", " + (root / "bin/gradmon-hub").string() +
                            ", " + (root / "lib/gradmon-hub").string() + "; ";
  CHECK(find_hub_program(kNothingSet, object).error() == tried + "set GRADMON_HUB to its absolute path");
  CHECK(find_hub_program(kNothingSet, {}).error() ==
        "gradmon-hub not found: set GRADMON_HUB to its absolute path");
  for (const std::string unusable : {"hub", "/nowhere/hub", "/tmp"}) {
    CHECK(find_hub_program(environment_with_hub(unusable), object).error() ==
          tried + "GRADMON_HUB=\"" + unusable + "\" is not the absolute path of an executable");
  }
}

TEST_CASE("own_object is the running program") { CHECK(own_object() == fs::canonical("/proc/self/exe")); }

TEST_CASE("a hub gets its own session and signals and descriptors and environment") {
  ScriptedHub hub(
      "cat /proc/self/status > $1/status\n"
      "cat /proc/self/stat > $1/stat\n"
      "ls -l /proc/self/fd > $1/descriptors\n"
      "standard=$(readlink /proc/$$/fd/0 /proc/$$/fd/1 /proc/$$/fd/2)\n"  // dash redirects itself
      "echo \"$standard\" > $1/standard\n"
      "env > $1/environment\n"
      "echo $# $2 $3 > $1/arguments\n");
  hub.command.arguments = {"--two words", "three"};
  write_text(hub.directory / "training-data", "");
  const Descriptor training(open((hub.directory / "training-data").c_str(), O_RDONLY));  // no O_CLOEXEC
  REQUIRE(setenv("LD_PRELOAD", "/nowhere.so", 1) == 0);
  REQUIRE(setenv("GRADMON_TEST_PASSED_ON", "yes", 1) == 0);
  hub.command.environment = hub_environment();
  unsetenv("LD_PRELOAD");
  unsetenv("GRADMON_TEST_PASSED_ON");

  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const auto pipe_before = signal(SIGPIPE, SIG_IGN);
  const auto started = start_hub(hub.command);
  signal(SIGPIPE, pipe_before);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  INFO((started ? "" : started.error()));
  REQUIRE(started);
  CHECK_FALSE(has_children());

  const std::string status = read_text(hub.directory / "status");
  CHECK(line_of(status, "SigBlk:") == "SigBlk:\t0000000000000000");
  const std::uint64_t glibc_signals = std::uint64_t{3} << 31U;  // 32 and 33: glibc ignores them in children
  CHECK((std::stoull(line_of(status, "SigIgn:").substr(8), nullptr, 16) & ~glibc_signals) == 0);
  std::istringstream stat(read_text(hub.directory / "stat"));
  std::string pid, name, state, parent, group, session;
  stat >> pid >> name >> state >> parent >> group >> session;
  CHECK(std::stoi(session) == std::stoi(group));
  CHECK(std::stoi(session) != getsid(0));
  CHECK(read_text(hub.directory / "descriptors").find("training-data") == std::string::npos);
  const std::string standard = read_text(hub.directory / "standard");
  CHECK(standard == "/dev/null\n/dev/null\n/dev/null\n");
  const std::string environment = read_text(hub.directory / "environment");
  CHECK(environment.find("LD_PRELOAD") == std::string::npos);
  CHECK(environment.find("GRADMON_TEST_PASSED_ON=yes\n") != std::string::npos);
  CHECK(read_text(hub.directory / "arguments") == "3 --two words three\n");
}

TEST_CASE("a hub that daemonises lives on and is not a child of this process") {
  // Ends without the directory, too: the test may have been killed.
  ScriptedHub hub(
      "(echo $$ > $1/came; while [ -d $1 ] && [ ! -e $1/go ]; do sleep 0.01; done; echo > $1/gone) &\n");
  REQUIRE(start_hub(hub.command));
  CHECK_FALSE(has_children());
  CHECK(eventually([&] { return fs::exists(hub.directory / "came"); }));
  CHECK_FALSE(fs::exists(hub.directory / "gone"));
  write_text(hub.directory / "go", "");
  CHECK(eventually([&] { return fs::exists(hub.directory / "gone"); }));
}

TEST_CASE("a hub that cannot start is an error that names the cause") {
  ScriptedHub hub("exit 3\n");
  const std::string program = hub.command.program.string();
  CHECK(start_hub(hub.command).error() == program + ": exited with status 3");
  write_program(hub.command.program, "kill -9 $$\n");
  CHECK(start_hub(hub.command).error() == program + ": was killed by signal 9");
  fs::permissions(hub.command.program, fs::perms::owner_read);
  CHECK(start_hub(hub.command).error() == "cannot start " + program + ": Permission denied");
  fs::remove(hub.command.program);
  CHECK(start_hub(hub.command).error() == "cannot start " + program + ": No such file or directory");
  CHECK_FALSE(has_children());
}

TEST_CASE("a hub that stays in the foreground is killed after the wait") {
  ScriptedHub hub("exec sleep 600\n");
  hub.command.most_wait = std::chrono::milliseconds(50);
  // Repeated: it waits for the end of the killed process only briefly.
  CHECK(eventually([&] {
    CHECK(start_hub(hub.command).error() ==
          hub.command.program.string() + ": did not daemonise within 50 ms: killed");
    const bool none_left = !has_children();
    while (waitpid(-1, nullptr, 0) > 0) {
    }
    return none_left;
  }));
}

TEST_CASE("a training program that ignores SIGCHLD or reaps every child can start a hub") {
  const ScriptedHub hub("echo > $1/ran\n");
  CHECK(exit_status_in_child([&] {
          signal(SIGCHLD, SIG_IGN);
          return start_hub(hub.command) ? 0 : 1;
        }) == 0);
  REQUIRE(fs::remove(hub.directory / "ran"));
  CHECK(exit_status_in_child([&] {
          struct sigaction take {};
          take.sa_handler = [](int) {
            const int before = errno;
            while (waitpid(-1, nullptr, WNOHANG) > 0) {
            }
            errno = before;
          };
          sigaction(SIGCHLD, &take, nullptr);
          return start_hub(hub.command) ? 0 : 1;
        }) == 0);
  CHECK(fs::exists(hub.directory / "ran"));
}

TEST_CASE("the training program's other children are not reaped") {
  const ScriptedHub hub("exit 0\n");
  const pid_t own = fork();
  if (own == 0) _exit(7);
  REQUIRE(own > 0);
  REQUIRE(start_hub(hub.command));
  int status = 0;
  REQUIRE(waitpid(own, &status, 0) == own);
  CHECK(WEXITSTATUS(status) == 7);
}

TEST_CASE("a process out of descriptors can start a hub unless the hub may have none either") {
  const ScriptedHub hub("echo > $1/ran\n");
  CHECK(exit_status_in_child([&] {
          const rlimit few{32, 32};
          setrlimit(RLIMIT_NOFILE, &few);
          while (dup(0) >= 0) {
          }
          return start_hub(hub.command) ? 0 : 1;
        }) == 0);
  CHECK(fs::exists(hub.directory / "ran"));
  CHECK(exit_status_in_child([&] {
          const rlimit none{0, 0};
          setrlimit(RLIMIT_NOFILE, &none);
          return start_hub(hub.command) ? 1 : 0;
        }) == 0);
}

TEST_CASE("a user who may start no more processes gets an error") {
  if (!is_root("become a user without its privileges")) return;
  const ScriptedHub hub("exit 0\n");
  CHECK(exit_status_in_child([&] {
          const rlimit none{0, 0};
          if (setgid(65'534) != 0 || setuid(65'534) != 0 || setrlimit(RLIMIT_NPROC, &none) != 0) return 2;
          return fails_with(hub.command, "Resource temporarily unavailable");
        }) == 0);
}

TEST_CASE("a process out of memory gets an error") {
  if (GRADMON_SANITIZED) {
    WARN("skipped: sanitizers need more memory than this test allows");
    return;
  }
  ScriptedHub hub("exit 0\n");
  CHECK(exit_status_in_child([&] {
          const rlimit none{4'096, 4'096};
          setrlimit(RLIMIT_AS, &none);
          return fails_with(hub.command, "Cannot allocate memory");
        }) == 0);
  hub.command.environment.assign(1'000, std::string(10'000, 'x'));
  // More than the tests before have left free on the heap.
  hub.command.arguments.assign(100, std::string(1'000'000, 'x'));
  CHECK(exit_status_in_child([&] {
          const rlimit none{4'096, 4'096};
          setrlimit(RLIMIT_AS, &none);
          return fails_with(hub.command, "out of memory");
        }) == 0);
}

}  // namespace

}  // namespace gradmon
