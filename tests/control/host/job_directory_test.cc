// SPDX-License-Identifier: Apache-2.0
#include "control/host/job_directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

#include "tests/control/host/file_mode.h"
#include "tests/support/temporary_directory.h"

using namespace gradmon;

namespace {

namespace fs = std::filesystem;

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

}  // namespace

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
  if (geteuid() != 0) {
    WARN("skipped: only root can give the directory to another user");
    return;
  }
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
    if (geteuid() != 0) {
      WARN("skipped: only root can make another user's directory");
      return;
    }
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
