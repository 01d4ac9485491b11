// SPDX-License-Identifier: Apache-2.0
#include "control/net/discovery.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "control/debian_version.h"
#include "control/net/process_identity.h"
#include "control/net/socket_directory.h"
#include "tests/temporary_directory.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

JobEntry own_job(std::string epoch) {
  JobEntry job;
  job.epoch = std::move(epoch);
  job.launcher_id = "launch \"1\"\n";
  job.endpoint = "ipc:///nowhere";
  job.host = host_name();
  job.pid = getpid();
  job.process_start = process_start_of(getpid());
  return job;
}

TEST_CASE("no file means no jobs and a broken one is an error") {
  TemporaryDirectory directory;
  REQUIRE(read_jobs(directory.path())->empty());
  write_text(directory / "gradmon.json", "{");
  REQUIRE_FALSE(read_jobs(directory.path()));
}

TEST_CASE("a job is found until it is removed") {
  TemporaryDirectory directory;
  REQUIRE(add_job(directory / "new/deeper", own_job("a")));
  REQUIRE(add_job(directory / "new/deeper", own_job("b")));
  const auto jobs = live_jobs(*read_jobs(directory / "new/deeper"));
  REQUIRE(jobs.size() == 2);
  REQUIRE(jobs[0].launcher_id == "launch \"1\"\n");
  REQUIRE(remove_job(directory / "new/deeper", "a"));
  REQUIRE(read_jobs(directory / "new/deeper")->front().epoch == "b");
}

// Of a process that has ended, which listened there.
JobEntry dead_job(const std::filesystem::path& socket) {
  JobEntry dead = own_job("dead");
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  dead.pid = child;
  dead.endpoint = "ipc://" + socket.string();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  socket.string().copy(address.sun_path, sizeof address.sun_path - 1);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  REQUIRE(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  close(fd);
  return dead;
}

TEST_CASE("of a dead process nothing is removed but its own sockets") {
  TemporaryDirectory directory;  // named gradmon-…, 0700: a person may choose such a one
  write_text(directory / "notes", "mine");
  REQUIRE(add_job(directory.path(), dead_job(directory / "control")));
  REQUIRE(add_job(directory.path(), own_job("alive")));
  REQUIRE_FALSE(std::filesystem::exists(directory / "control"));
  REQUIRE(read_text(directory / "notes") == "mine");
}

TEST_CASE("a job that takes the place of a dead one keeps the socket it has just made") {
  TemporaryDirectory directory;
  const JobEntry dead = dead_job(directory / "control");
  REQUIRE(add_job(directory.path(), dead));
  JobEntry next = own_job("next");
  next.endpoint = dead.endpoint;
  REQUIRE(add_job(directory.path(), next));
  REQUIRE(std::filesystem::exists(directory / "control"));
}

TEST_CASE("the entry and the socket directory of a dead process go at the next start") {
  TemporaryDirectory directory;
  const auto sockets = make_socket_directory();
  REQUIRE(sockets);
  const JobEntry dead = dead_job(*sockets / "control");
  REQUIRE(add_job(directory.path(), dead));
  REQUIRE(live_jobs(*read_jobs(directory.path())).empty());
  REQUIRE(add_job(directory.path(), own_job("alive")));
  REQUIRE(read_jobs(directory.path())->size() == 1);
  REQUIRE_FALSE(std::filesystem::exists(*sockets));
}

TEST_CASE("jobs that register at the same moment do not lose each other") {
  TemporaryDirectory directory;
  std::vector<std::thread> starters;
  for (int i = 0; i < 8; ++i) {
    starters.emplace_back(
        [&, i] { [[maybe_unused]] auto r = add_job(directory.path(), own_job(std::to_string(i))); });
  }
  for (std::thread& starter : starters) starter.join();
  REQUIRE(read_jobs(directory.path())->size() == 8);
}

}  // namespace
}  // namespace gradmon
