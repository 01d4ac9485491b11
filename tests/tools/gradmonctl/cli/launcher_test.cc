// SPDX-License-Identifier: Apache-2.0
// `gradmonctl run` as a process. The ranks are shell scripts; $DIR is the test's
// directory.
#include "tools/gradmonctl/cli/launcher.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "control/files/descriptor.h"
#include "tests/support/catch.h"
#include "tests/tools/gradmonctl/gradmonctl_process.h"

namespace gradmon {
namespace {

TEST_CASE("a line is returned with its rank once it is complete") {
  LinePrefixer lines(17);
  CHECK(lines.feed("lo").empty());
  CHECK(lines.feed("ss 1\nloss 2\n\nlo") == "[17] loss 1\n[17] loss 2\n[17] \n");
  CHECK(lines.feed("ss 3\n") == "[17] loss 3\n");
}

TEST_CASE("a last line without a line feed gets one") {
  LinePrefixer lines(0);
  CHECK(lines.feed("a\nb") == "[0] a\n");
  CHECK(lines.finish() == "[0] b\n");
  CHECK(lines.finish().empty());
}

TEST_CASE("an overlong line is cut") {
  LinePrefixer lines(1);
  const std::string longest(LinePrefixer::kLongestLine, 'x');
  CHECK(lines.feed(longest + "yz") == "[1] " + longest + "\n");
  CHECK(lines.finish() == "[1] yz\n");
}

bool has(const std::vector<std::string>& environment, const std::string& entry) {
  return std::count(environment.begin(), environment.end(), entry) == 1;
}

TEST_CASE("a rank gets the variables of torchrun and of gradmon") {
  const auto variables =
      rank_environment({"PATH=/bin", "RANK=9", "MASTER_ADDR=elsewhere"}, 2, {4, 1234, "id"});
  for (const char* entry :
       {"PATH=/bin", "RANK=2", "WORLD_SIZE=4", "LOCAL_RANK=2", "LOCAL_WORLD_SIZE=4", "MASTER_ADDR=127.0.0.1",
        "MASTER_PORT=1234", "GRADMON_RUN_ID=id", "USE_LIBUV=0", "DYNAMIC_MONITOR=True"}) {
    CAPTURE(entry);
    CHECK(has(variables, entry));
  }
  CHECK(variables.size() == 10);
}

TEST_CASE("a variable stays as the user has set it, also if it is empty or has equals signs") {
  for (const char* set : {"DYNAMIC_MONITOR=0", "DYNAMIC_MONITOR=", "USE_LIBUV=1", "A=b=c", "EMPTY="}) {
    CAPTURE(set);
    CHECK(has(rank_environment({set}, 0, {1, 1, "id"}), set));
  }
}

TEST_CASE("free_port returns a port that the system gives to nobody who asks for any") {
  std::ifstream range("/proc/sys/net/ipv4/ip_local_port_range");
  int lowest = 0;
  REQUIRE(range >> lowest);
  const auto port = free_port();
  REQUIRE(port);
  if (lowest > 10'000) CHECK(*port >= 10'000);
  if (lowest > 20'000) CHECK(*port < lowest);
}

std::vector<std::string> run_arguments(int ranks, const std::string& script) {
  return {"run", "-n", std::to_string(ranks), "--", "bash", "-c", script};
}

std::vector<std::string> sorted_lines(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  return lines;
}

// The process ids in $DIR/pid0 … that the ranks have written completely.
std::vector<pid_t> pids(const TemporaryDirectory& directory, int count) {
  std::vector<pid_t> result;
  for (int i = 0; i < count; ++i) {
    const std::string text = read_text(directory / ("pid" + std::to_string(i)));
    if (!text.empty() && text.back() == '\n') result.push_back(std::stoi(text));
  }
  return result;
}

// True if the process has ended. A zombie has: only its parent can reap it.
bool has_ended(pid_t pid) {
  const std::string state = read_text("/proc/" + std::to_string(pid) + "/stat");
  return state.empty() || state.find(") Z ") != std::string::npos;
}

bool all_ended(const std::vector<pid_t>& processes) {
  return std::all_of(processes.begin(), processes.end(), has_ended);
}

// gradmonctl and its ranks, which know a directory as $DIR.
struct Launched {
  Launched(int ranks, const std::string& script) : Launched(run_arguments(ranks, script)) {}
  explicit Launched(const std::vector<std::string>& words)
      : ctl(words, {"DIR=" + (directory / "").string()}) {}

  TemporaryDirectory directory;
  GradmonctlProcess ctl;
};

TEST_CASE("ranks know their number and the world size and their lines are prefixed") {
  GradmonctlProcess ctl(run_arguments(3, "echo $RANK of $WORLD_SIZE; echo bad >&2; printf 'no line feed'"));
  CHECK(ctl.wait() == 0);
  CHECK(sorted_lines(ctl.out()) == std::vector<std::string>{"[0] 0 of 3", "[0] no line feed", "[1] 1 of 3",
                                                            "[1] no line feed", "[2] 2 of 3",
                                                            "[2] no line feed"});
  CHECK(sorted_lines(ctl.err()) == std::vector<std::string>{"[0] bad", "[1] bad", "[2] bad"});
}

TEST_CASE("no line is lost or mixed however much the ranks write") {
  GradmonctlProcess ctl(run_arguments(4, "seq -f \"$RANK-%g\" 1 20000"));
  CHECK(ctl.wait() == 0);
  std::istringstream stream(ctl.out());
  std::vector<int> next(4, 1);
  for (std::string line; std::getline(stream, line);) {
    const std::size_t rank = static_cast<std::size_t>(line.at(1) - '0');
    REQUIRE(line ==
            "[" + std::to_string(rank) + "] " + std::to_string(rank) + "-" + std::to_string(next.at(rank)++));
  }
  CHECK(next == std::vector<int>(4, 20001));
}

TEST_CASE("ranks read end of file from stdin") {
  // The rank of the outer gradmonctl is a shell, which gives the inner gradmonctl a stdin with data.
  GradmonctlProcess ctl(run_arguments(1, "echo data | " + std::string(GRADMONCTL) + " run -n 2 -- cat"));
  CHECK(ctl.wait() == 0);
  CHECK(ctl.out().empty());
}

TEST_CASE("one failing rank ends the others and gives its exit code") {
  Launched job(3,
               "echo $$ >$DIR/pid$RANK; [ $RANK = 1 ] || exec sleep 1000; "
               "until [ -s $DIR/pid0 ] && [ -s $DIR/pid2 ]; do sleep 0.01; done; exit 37");
  CHECK(job.ctl.wait() == 37);
  CHECK(job.ctl.err() == "gradmonctl: rank 1 ended with exit code 37; ending the others\n");
  REQUIRE(pids(job.directory, 3).size() == 3);
  CHECK(all_ended(pids(job.directory, 3)));
}

TEST_CASE("a killed rank gives 128 plus the signal") {
  GradmonctlProcess ctl(run_arguments(2, "[ $RANK = 1 ] && kill -SEGV $$; exec sleep 1000"));
  CHECK(ctl.wait() == 128 + SIGSEGV);
  CHECK(ctl.err().find("rank 1 was killed by signal 11") != std::string::npos);
}

TEST_CASE("a rank that ignores SIGTERM is killed after the grace time") {
  Launched job(2,
               "trap '' TERM; echo $$ >$DIR/pid$RANK; [ $RANK = 0 ] || exec sleep 1000; "
               "until [ -s $DIR/pid1 ]; do sleep 0.01; done; exit 5");
  CHECK(job.ctl.wait() == 5);
  REQUIRE(pids(job.directory, 2).size() == 2);
  CHECK(all_ended(pids(job.directory, 2)));
}

TEST_CASE("a missing command ends with 127 and a file that is no program with 126") {
  GradmonctlProcess missing({"run", "-n", "1", "--", "/no/such/program"});
  CHECK(missing.wait() == 127);
  CHECK(missing.err().find("[0] gradmonctl: cannot run /no/such/program: No such file") != std::string::npos);
  GradmonctlProcess data({"run", "-n", "1", "--", "/etc/passwd"});
  CHECK(data.wait() == 126);
}

TEST_CASE("signals reach every rank and the ranks' exit code is returned") {
  const auto [signal, name] = GENERATE(std::make_pair(SIGINT, "INT"), std::make_pair(SIGQUIT, "QUIT"),
                                       std::make_pair(SIGTERM, "TERM"), std::make_pair(SIGHUP, "HUP"));
  Launched job(3,
               "for name in INT QUIT TERM HUP; do trap \"echo $name; exit 0\" $name; done; "
               "echo $$ >$DIR/pid$RANK; while :; do sleep 0.01; done");
  REQUIRE(eventually([&] { return pids(job.directory, 3).size() == 3; }));
  kill(job.ctl.pid(), signal);
  CHECK(job.ctl.wait() == 0);
  std::vector<std::string> lines;
  for (const char* const rank : {"[0] ", "[1] ", "[2] "}) lines.push_back(std::string(rank) + name);
  CHECK(sorted_lines(job.ctl.out()) == lines);
}

TEST_CASE("a signal ends the ranks even if nobody reads their output") {
  TemporaryDirectory directory;
  const std::string path = directory / "fifo";
  REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  const Descriptor fifo(open(path.c_str(), O_RDWR | O_CLOEXEC));
  // A shell turns into the inner gradmonctl, to redirect its stdout.
  GradmonctlProcess ctl({"run", "-n", "1", "--", "bash", "-c",
                         "exec " + std::string(GRADMONCTL) +
                             " run -n 2 -- bash -c 'echo $$ >$DIR/pid$RANK; exec yes' >$DIR/fifo"},
                        {"DIR=" + (directory / "").string()});
  constexpr int nearly_full = 60'000;  // of the 64 KiB that a FIFO holds
  REQUIRE(eventually([&] {
    int unread = 0;
    return ioctl(fifo.get(), FIONREAD, &unread) == 0 && unread > nearly_full &&
           pids(directory, 2).size() == 2;
  }));
  kill(ctl.pid(), SIGTERM);
  CHECK(ctl.wait() == 128 + SIGTERM);
  REQUIRE(pids(directory, 2).size() == 2);
  CHECK(all_ended(pids(directory, 2)));
}

TEST_CASE("processes that a rank leaves behind are ended") {
  Launched job(1, "sleep 1000 & echo $! >$DIR/pid0; exit 0");
  CHECK(job.ctl.wait() == 0);
  REQUIRE(pids(job.directory, 1).size() == 1);
  CHECK(all_ended(pids(job.directory, 1)));
}

TEST_CASE("ranks die with their launcher, and by a signal that it passes on") {
  const int signal = GENERATE(SIGTERM, SIGKILL);
  Launched job(3, "echo $$ >$DIR/pid$RANK; exec sleep 1000");
  REQUIRE(eventually([&] { return pids(job.directory, 3).size() == 3; }));
  kill(job.ctl.pid(), signal);
  CHECK(job.ctl.wait() == 128 + signal);
  if (signal == SIGTERM) CHECK(all_ended(pids(job.directory, 3)));
  CHECK(eventually([&] { return all_ended(pids(job.directory, 3)); }));
}

TEST_CASE("ranks run on after the reader of their output has gone") {
  // A shell makes the pipe. head ends after one line, and so closes the reading end of gradmonctl's stdout.
  Launched job({"run", "-n", "1", "--", "bash", "-c",
                std::string(GRADMONCTL) +
                    " run -n 2 -- bash -c 'seq 1 200000; echo done >$DIR/done$RANK' | head -n 1"});
  CHECK(job.ctl.wait() == 0);
  CHECK(read_text(job.directory / "done0") == "done\n");
  CHECK(read_text(job.directory / "done1") == "done\n");
}

TEST_CASE("exit codes are returned even if the parent ignores SIGCHLD") {
  // The outer gradmonctl only starts env, which starts the inner gradmonctl with SIGCHLD ignored.
  GradmonctlProcess ctl({"run", "-n", "1", "--", "env", "--ignore-signal=CHLD", GRADMONCTL, "run", "-n", "1",
                         "--", "bash", "-c", "exit 3"});
  CHECK(ctl.wait() == 3);
}

TEST_CASE("ranks start with no signal blocked or ignored") {
  GradmonctlProcess ctl(run_arguments(1, "grep -E 'SigBlk|SigIgn' /proc/self/status | cut -f 2"));
  CHECK(ctl.wait() == 0);
  CHECK(ctl.out() == "[0] 0000000000000000\n[0] 0000000000000000\n");
}

}  // namespace
}  // namespace gradmon
