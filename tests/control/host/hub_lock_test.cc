// SPDX-License-Identifier: Apache-2.0
#include "control/host/hub_lock.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <optional>

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

#include "tests/control/host/resource_limit.h"
#include "tests/support/temporary_directory.h"

using namespace gradmon;

namespace {

namespace fs = std::filesystem;
using Kind = HubLock::Failure::Kind;

struct Job {
  Job() : directory(make_job_directory("job", {{}, root / "shared"}).value()) {}

  TemporaryDirectory root;
  JobDirectory directory;
};

// Whether another process can take the lock.
bool free_for_another(const JobDirectory& directory) {
  const pid_t other = fork();
  if (other == 0) _exit(HubLock::acquire(directory) ? 0 : 1);
  REQUIRE(other > 0);
  int status = -1;
  REQUIRE(waitpid(other, &status, 0) == other);
  return status == 0;
}

}  // namespace

TEST_CASE("one hub at a time holds a job's lock") {
  const Job job;
  {
    const auto lock = HubLock::acquire(job.directory);
    INFO((lock ? "" : lock.error().reason));
    REQUIRE(lock);
    CHECK(lock->is_at_its_path());
    CHECK_FALSE(free_for_another(job.directory));
    const auto second = HubLock::acquire(job.directory);
    REQUIRE_FALSE(second);
    CHECK(second.error().kind == Kind::taken);
    CHECK(second.error().reason ==
          job.directory.lock().string() + ": another hub of this job holds the lock");
  }
  CHECK(fs::exists(job.directory.lock()));
  CHECK(free_for_another(job.directory));
  CHECK(HubLock::acquire(job.directory));
}

TEST_CASE("a lock is released when its process is killed") {
  const Job job;
  int ready[2];
  REQUIRE(pipe(ready) == 0);
  const pid_t hub = fork();
  if (hub == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const auto lock = HubLock::acquire(job.directory);
    if (write(ready[1], lock ? "y" : "n", 1) != 1) _exit(1);
    while (true) pause();
  }
  close(ready[1]);  // so that read() ends if the child does
  REQUIRE(hub > 0);
  char taken = 0;
  REQUIRE(read(ready[0], &taken, 1) == 1);
  REQUIRE(taken == 'y');
  CHECK(HubLock::acquire(job.directory).error().kind == Kind::taken);
  kill(hub, SIGKILL);
  REQUIRE(waitpid(hub, nullptr, 0) == hub);
  CHECK(HubLock::acquire(job.directory));
  close(ready[0]);
}

TEST_CASE("a forked child keeps the lock after its parent has released it") {
  const Job job;
  int done[2];
  REQUIRE(pipe(done) == 0);
  std::optional<HubLock> lock(std::move(HubLock::acquire(job.directory).value()));
  const pid_t child = fork();
  if (child == 0) {
    close(done[1]);
    char byte = 0;
    _exit(read(done[0], &byte, 1) == 0 && lock->is_at_its_path() ? 0 : 1);
  }
  lock.reset();
  CHECK(HubLock::acquire(job.directory).error().kind == Kind::taken);
  close(done[1]);
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  close(done[0]);
  CHECK(HubLock::acquire(job.directory));
}

TEST_CASE("a lock notices that its path has gone or names another file") {
  const Job job;
  const auto lock = HubLock::acquire(job.directory);
  REQUIRE(lock);
  SECTION("lock file removed") { fs::remove(job.directory.lock()); }
  SECTION("lock file replaced") { write_text(job.directory.lock(), ""); }
  SECTION("directory removed") { fs::remove_all(job.directory.path); }
  SECTION("base removed") { fs::remove_all(job.directory.path.parent_path()); }
  SECTION("directory replaced, the lock file linked into it") {
    const fs::path before = job.directory.path.string() + ".before";
    fs::rename(job.directory.path, before);
    REQUIRE(mkdir(job.directory.path.c_str(), 0700) == 0);
    fs::create_hard_link(before / "lock", job.directory.lock());
    CHECK_FALSE(lock->is_at_its_path());
    CHECK(HubLock::acquire(job.directory).error().kind == Kind::taken);
    return;
  }
  CHECK_FALSE(lock->is_at_its_path());
  REQUIRE(make_job_directory("job", {{}, job.root / "shared"}));
  CHECK_FALSE(lock->is_at_its_path());
  const auto anew = HubLock::acquire(job.directory);
  REQUIRE(anew);
  CHECK(anew->is_at_its_path());
}

TEST_CASE("a lock that cannot be taken says why") {
  const Job job;
  const fs::path path = job.directory.lock();
  std::string expected = path.string() + ": ";
  std::unique_ptr<const DescriptorLimit> limit;
  SECTION("a pipe") {
    REQUIRE(mkfifo(path.c_str(), 0600) == 0);
    expected += "is not a regular file; remove it";
  }
  SECTION("a link") {
    fs::create_symlink(job.root / "elsewhere", path);
    expected += "Too many levels of symbolic links";
  }
  SECTION("a directory") {
    fs::create_directory(path);
    expected += "Is a directory";
  }
  SECTION("another user's") {
    if (geteuid() != 0) {
      WARN("skipped: only root can make another user's file");
      return;
    }
    write_text(path, "");
    REQUIRE(chown(path.c_str(), 12'345, 0) == 0);
    expected += "belongs to uid 12345; expected uid 0 (the current user)";
  }
  SECTION("a directory open to others") {
    REQUIRE(chmod(job.directory.path.c_str(), 0755) == 0);
    expected = job.directory.path.string() + ": has mode 0755; expected 0700; run chmod 700";
  }
  SECTION("no descriptor") {
    expected = job.root.path().string() + ": Too many open files";
    limit = std::make_unique<const DescriptorLimit>(rlim_t{3});
  }
  const auto lock = HubLock::acquire(job.directory);
  limit.reset();
  REQUIRE_FALSE(lock);
  CHECK(lock.error().kind == Kind::error);
  CHECK(lock.error().reason == expected);
  CHECK_FALSE(fs::exists(job.root / "elsewhere"));
}
