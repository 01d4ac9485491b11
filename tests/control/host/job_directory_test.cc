// SPDX-License-Identifier: Apache-2.0
#include "control/host/job_directory.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>

#include "control/files/descriptor.h"
#include "tests/support/catch.h"
#include "tests/support/is_root.h"
#include "tests/support/resource_limit.h"
#include "tests/support/temporary_directory.h"

namespace gradmon {
namespace {

EnvironmentLookup runtime_is(const std::string& value) {
  return [value](const char* name) {
    return std::string(name) == "XDG_RUNTIME_DIR" ? std::optional(value) : std::nullopt;
  };
}

// Two bases in a temporary directory.
struct Bases {
  Bases() : value{directory / "runtime", directory / "shared"} {}

  TemporaryDirectory directory;
  JobBases value;
};

TEST_CASE("a short launch id of plain characters is the name of its directory") {
  for (const std::string name : {"a", "none", "5f0d1c9e-7d0c-4c6e-9a40-1f2e3d4c5b6a", "job_1.2-3"})
    CHECK(job_file_name(name) == name);
  CHECK(job_file_name(std::string(40, 'x')) == std::string(40, 'x'));
}

TEST_CASE("any other launch id becomes a safe and unique name") {
  CHECK(job_file_name("") == "job-e3b0c44298fc1c14");
  CHECK(job_file_name("../../etc") == "job.._.._etc-74ccf3c5b4c19a81");
  CHECK(job_file_name("a/b") != job_file_name("a_b"));
  const std::string nul("a\0b", 3);
  const std::string ids[] = {".",
                             "..",
                             ".hidden",
                             "-rf",
                             "a b",
                             "a/b",
                             "a\nb",
                             "größer",
                             nul,
                             std::string(41, 'x'),
                             std::string(100'000, 'y'),
                             std::string(50, '.')};
  for (const std::string& id : ids) {
    const std::string name = job_file_name(id);
    CAPTURE(id.substr(0, 60), name);
    CHECK(name.size() <= 40);
    CHECK(name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") ==
          std::string::npos);
    CHECK(name.front() != '.');
    CHECK(name.front() != '-');
    CHECK(name != job_file_name(id + "x"));
  }
}

TEST_CASE("XDG_RUNTIME_DIR is used only if it is short and this user owns it and others cannot write") {
  const TemporaryDirectory directory(fs::path("/tmp"));  // short: more than 48 bytes would be refused
  REQUIRE(job_bases(runtime_is(directory.path())).xdg_runtime == directory / "gradmon");
  CHECK(job_bases(runtime_is(directory.path())).preferred() == directory / "gradmon");

  const auto fallback = "/dev/shm/gradmon-" + std::to_string(geteuid());
  CHECK(job_bases([](const char*) { return std::nullopt; }).preferred() == fallback);
  const auto long_one = directory / std::string(40, 'l');
  fs::create_directory(long_one);
  write_text(directory / "file", "");
  for (const std::string& unusable :
       {std::string(), std::string("relative"), std::string("."), (directory / "missing").string(),
        long_one.string(), (directory / "file").string()}) {
    CAPTURE(unusable);
    CHECK(job_bases(runtime_is(unusable)).preferred() == fallback);
  }
  REQUIRE(chmod(directory.path().c_str(), 0770) == 0);
  CHECK_FALSE(job_bases(runtime_is(directory.path())).xdg_runtime);
  REQUIRE(chmod(directory.path().c_str(), 0700) == 0);
  if (!is_root("give the directory to another user")) return;
  REQUIRE(chown(directory.path().c_str(), 12'345, 0) == 0);
  CHECK_FALSE(job_bases(runtime_is(directory.path())).xdg_runtime);
}

TEST_CASE("a job's directory is made once and with mode 0700 whatever the umask") {
  const Bases bases;
  const mode_t before = umask(0777);
  const auto job = make_job_directory("job", bases.value);
  umask(before);
  INFO((job ? "" : job.error()));
  REQUIRE(job);
  CHECK(job->path == bases.directory / "runtime" / "job");
  CHECK(mode_of(job->path) == 0700);
  CHECK(mode_of(job->path.parent_path()) == 0700);
  CHECK(job->check());
  CHECK(job->socket() == job->path / "hub.sock");
  CHECK(job->alerts().string().size() == job->socket().string().size());
  CHECK(job->lock() == job->path / "lock");
  CHECK(job->decisions() == job->path / "decisions");
  CHECK(job->log() == job->path / "hub.log");
  const auto again = make_job_directory("job", bases.value);
  REQUIRE(again);
  CHECK(again->path == job->path);
}

TEST_CASE("an unsafe base or job directory is refused at every use and the error says why") {
  const Bases bases;
  const auto job = make_job_directory("job", bases.value);
  REQUIRE(job);
  const fs::path target = GENERATE(0, 1) == 0 ? job->path : job->path.parent_path();
  std::string expected = target.string() + ": ";
  SECTION("wider mode") {
    REQUIRE(chmod(target.c_str(), 0750) == 0);
    expected += "has mode 0750; expected 0700; run chmod 700";
  }
  SECTION("symbolic link to a proper directory") {
    fs::rename(target, bases.directory / "elsewhere");
    fs::create_directory_symlink(bases.directory / "elsewhere", target);
    expected += "is a symbolic link; expected a directory; remove it";
  }
  SECTION("symbolic link to nothing") {
    fs::remove_all(target);
    fs::create_symlink(bases.directory / "nowhere", target);
    expected += "is a symbolic link; expected a directory; remove it";
  }
  SECTION("a file") {
    fs::remove_all(target);
    write_text(target, "");
    expected += "is not a directory; remove it";
  }
  SECTION("planted by another user") {
    if (!is_root("make another user's directory")) return;
    REQUIRE(chown(target.c_str(), 12'345, 0) == 0);
    expected += "belongs to uid 12345; expected uid 0 (the current user)";
  }
  const auto checked = job->check();
  REQUIRE_FALSE(checked);
  CHECK(checked.error() == expected);
  const auto made = make_job_directory("job", bases.value);
  REQUIRE_FALSE(made);
  CHECK(made.error() == expected);
  const FoundJobs found = find_job_directories(bases.value);
  CHECK(found.directories.empty());
  CHECK(found.refused == std::vector<std::string>{expected});
}

TEST_CASE("a removed directory fails the check and is made again") {
  const Bases bases;
  const auto job = make_job_directory("job", bases.value);
  REQUIRE(job);
  fs::remove_all(bases.directory / "runtime");
  const auto checked = job->check();
  REQUIRE_FALSE(checked);
  CHECK(checked.error() == (bases.directory / "runtime").string() + ": No such file or directory");
  CHECK(make_job_directory("job", bases.value));
  CHECK(job->check());
}

TEST_CASE("all jobs of both bases are found") {
  Bases bases;
  CHECK(find_job_directories(bases.value).directories.empty());
  REQUIRE(make_job_directory("b", bases.value));
  REQUIRE(make_job_directory("a", bases.value));
  bases.value.xdg_runtime.reset();
  REQUIRE(make_job_directory("c", bases.value));
  bases.value.xdg_runtime = bases.directory / "runtime";
  const FoundJobs found = find_job_directories(bases.value);
  REQUIRE(found.directories.size() == 3);
  CHECK(found.directories[0].path == bases.directory / "runtime" / "a");
  CHECK(found.directories[1].path == bases.directory / "runtime" / "b");
  CHECK(found.directories[2].path == bases.directory / "shared" / "c");
  CHECK(found.refused.empty());
}

TEST_CASE("a job whose runtime directory is gone has its directory in the other base") {
  const TemporaryDirectory directory;
  const JobBases bases{directory / "runtime" / "gradmon", directory / "shared"};
  REQUIRE_FALSE(fs::exists(directory / "runtime"));
  const auto job = make_job_directory("job", bases);
  INFO((job ? "" : job.error()));
  REQUIRE(job);
  CHECK(job->path == directory / "shared" / "job");
  // A runtime directory that is there but cannot be used is an error.
  write_text(directory / "runtime", "");
  CHECK_FALSE(make_job_directory("job", bases));
}

TEST_CASE("the directory that a login makes is searched in every environment") {
  Bases bases;
  bases.value.run_user = bases.directory / "run";
  REQUIRE(make_job_directory("a", {bases.value.run_user, bases.value.dev_shm}));
  REQUIRE(find_job_directories(bases.value).directories.size() == 1);
  CHECK(find_job_directories(bases.value).directories[0].path == bases.directory / "run" / "a");
  bases.value.xdg_runtime.reset();
  CHECK(bases.value.all() == std::vector<fs::path>{bases.value.dev_shm, *bases.value.run_user});
}

using Kind = HubLock::Failure::Kind;

struct Job {
  Job() : directory(make_job_directory("job", {{}, root / "shared"}).value()) {}

  TemporaryDirectory root;
  JobDirectory directory;
};

// True if another process can take the lock.
bool free_for_another(const JobDirectory& directory) {
  const pid_t other = fork();
  if (other == 0) _exit(HubLock::acquire(directory) ? 0 : 1);
  REQUIRE(other > 0);
  int status = -1;
  REQUIRE(waitpid(other, &status, 0) == other);
  return status == 0;
}

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
  Pipe ready = make_pipe(0).value();
  const pid_t hub = fork();
  if (hub == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const auto lock = HubLock::acquire(job.directory);
    if (write(ready.to.get(), lock ? "y" : "n", 1) != 1) _exit(1);
    while (true) pause();
  }
  ready.to.reset();  // so that read() ends if the child does
  REQUIRE(hub > 0);
  char taken = 0;
  REQUIRE(read(ready.from.get(), &taken, 1) == 1);
  REQUIRE(taken == 'y');
  CHECK(HubLock::acquire(job.directory).error().kind == Kind::taken);
  kill(hub, SIGKILL);
  REQUIRE(waitpid(hub, nullptr, 0) == hub);
  CHECK(HubLock::acquire(job.directory));
}

TEST_CASE("a forked child keeps the lock after its parent has released it") {
  const Job job;
  Pipe done = make_pipe(0).value();
  std::optional<HubLock> lock(std::move(HubLock::acquire(job.directory).value()));
  const pid_t child = fork();
  if (child == 0) {
    done.to.reset();
    char byte = 0;
    _exit(read(done.from.get(), &byte, 1) == 0 && lock->is_at_its_path() ? 0 : 1);
  }
  lock.reset();
  CHECK(HubLock::acquire(job.directory).error().kind == Kind::taken);
  done.to.reset();
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
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
    if (!is_root("make another user's file")) return;
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

using std::chrono::hours;

struct Base {
  TemporaryDirectory scratch;
  JobBases bases{scratch / "other base", scratch / "base"};

  JobDirectory job(const std::string& name, hours age) const { return job_in(bases.dev_shm, name, age); }
  JobDirectory job_in(const fs::path& base, const std::string& name, hours age) const {
    auto made = make_job_directory(name, {{}, base});
    REQUIRE(made);
    write_text(made->log(), "a line\n");
    write_text(made->keys(), "a key\n");
    const auto then = fs::file_time_type::clock::now() - age;
    fs::last_write_time(made->log(), then);
    fs::last_write_time(made->path, then);
    return *made;
  }
  std::size_t left() const {
    const auto count = std::distance(fs::directory_iterator(bases.dev_shm), fs::directory_iterator());
    return static_cast<std::size_t>(count);
  }
};

TEST_CASE("a job directory is removed after a week unless it is locked or holds other files") {
  const Base base;
  const JobDirectory own = base.job("own", hours(500));
  const JobDirectory held = base.job("held", hours(500));
  const auto lock = HubLock::acquire(held);
  REQUIRE(lock);
  fs::last_write_time(held.lock(), fs::file_time_type::clock::now() - hours(500));
  fs::last_write_time(held.path, fs::file_time_type::clock::now() - hours(500));
  const JobDirectory fuller = base.job("fuller", hours(500));
  write_text(fuller.path / "notes", "mine");
  fs::last_write_time(fuller.path, fs::file_time_type::clock::now() - hours(500));
  base.job("old", hours(169));
  base.job("younger", hours(100));
  remove_old_jobs(own, base.bases);
  CHECK(base.left() == 4);
  CHECK_FALSE(fs::exists(base.bases.dev_shm / "old"));
  CHECK(fs::exists(fuller.path / "notes"));
}

TEST_CASE("an old job is removed with every file of a hub and the partial files of a killed hub") {
  const Base base;
  const JobDirectory own = base.job("own", hours(0));
  const JobDirectory old = base.job("old", hours(169));
  for (const char* name :
       {"hub.sock", "pub.sock", "lock", "decisions", "decisions.new", "keys.new", "hub.log.1"}) {
    write_text(old.path / name, "left");
    fs::last_write_time(old.path / name, fs::file_time_type::clock::now() - hours(169));
  }
  fs::last_write_time(old.path, fs::file_time_type::clock::now() - hours(169));
  remove_old_jobs(own, base.bases);
  CHECK_FALSE(fs::exists(old.path));
}

TEST_CASE("old jobs are removed from every base") {
  const Base base;
  const JobDirectory own = base.job("own", hours(0));
  const JobDirectory elsewhere = base.job_in(*base.bases.xdg_runtime, "elsewhere", hours(169));
  const JobDirectory younger = base.job_in(*base.bases.xdg_runtime, "younger", hours(100));
  remove_old_jobs(own, base.bases);
  CHECK_FALSE(fs::exists(elsewhere.path));
  CHECK(fs::exists(younger.path));
}

TEST_CASE("only the newest jobs are kept and a job younger than ten minutes always stays") {
  const Base base;
  const JobDirectory own = base.job("own", hours(0));
  for (int i = 0; i < 5; ++i) base.job("young" + std::to_string(i), hours(0));
  for (int i = 1; i < 4; ++i) base.job("hours" + std::to_string(i), hours(i));
  RetentionPolicy policy;
  policy.max_count = 7;
  remove_old_jobs(own, base.bases, policy);
  CHECK(base.left() == 8);
  CHECK_FALSE(fs::exists(base.bases.dev_shm / "hours3"));
  policy.max_count = 0;
  remove_old_jobs(own, base.bases, policy);
  CHECK(base.left() == 6);
}

TEST_CASE("old histories are removed but not those of running jobs and not other files") {
  const TemporaryDirectory output;
  const auto epoch = [&](const std::string& name, hours age) {
    const fs::path history = output / ".gradmon" / name / "history.jsonl";
    fs::create_directories(history.parent_path());
    write_text(history, "{}\n");
    fs::last_write_time(history, fs::file_time_type::clock::now() - age);
    return history.parent_path();
  };
  const fs::path own = epoch("own", hours(500));
  const fs::path beside = epoch("beside", hours(500));  // of a job in the same output directory
  const fs::path old = epoch("old", hours(169));
  const fs::path younger = epoch("younger", hours(100));
  const fs::path with_more = epoch("with more", hours(169));
  write_text(with_more / "notes", "mine");
  for (const char* name : {"history.jsonl.1", "alerts.jsonl.1"}) {
    write_text(old / name, "{}\n");
    fs::last_write_time(old / name, fs::file_time_type::clock::now() - hours(169));
  }
  const fs::path static_job = epoch("static", hours(169));
  fs::rename(static_job / "history.jsonl", static_job / "alerts.jsonl");
  fs::create_directories(output / ".gradmon" / "jobs");
  remove_old_histories(output.path(), {"own", "beside"});
  CHECK(fs::exists(own / "history.jsonl"));
  CHECK(fs::exists(beside / "history.jsonl"));
  CHECK_FALSE(fs::exists(old));
  CHECK_FALSE(fs::exists(static_job));
  CHECK(fs::exists(younger / "history.jsonl"));
  CHECK(fs::exists(with_more / "notes"));
  CHECK(fs::exists(output / ".gradmon" / "jobs"));
}

}  // namespace
}  // namespace gradmon
