// SPDX-License-Identifier: Apache-2.0
#include "control/host/old_jobs.h"

#include <sys/stat.h>

#include "control/debian_version.h"
#include "control/host/hub_lock.h"
#include "tests/support/temporary_directory.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

namespace fs = std::filesystem;
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