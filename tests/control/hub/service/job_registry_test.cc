// SPDX-License-Identifier: Apache-2.0
#include "control/hub/service/job_registry.h"

#include <sys/stat.h>

#include <functional>
#include <memory>

#include "control/config/file_content.h"
#include "control/debian_version.h"
#include "control/host/process_identity.h"
#include "tests/support/temporary_directory.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

struct RegistryFixture {
  TemporaryDirectory directory;
  fs::path file = directory / ".config.json.gradmon-jobs";

  std::unique_ptr<JobRegistry> job(const std::string& launch, const std::string& name = "") const {
    auto made = std::make_unique<JobRegistry>(file, JobRegistry::Job{launch, name, "here"});
    made->refresh();
    return made;
  }
};

FileIdentity save(const std::string& text) { return {wall_now() * 1'000'000, text.size(), sha256_of(text)}; }

TEST_CASE("jobs with one config see each other while they live and the last job removes the file") {
  const RegistryFixture fixture;
  auto one = fixture.job("launch-1", "train.py");
  CHECK(one->refresh().empty());
  auto two = fixture.job("launch-2");
  CHECK(one->refresh() == Names{"job launch-2 on here"});
  CHECK(two->refresh() == Names{"job train.py (launch launch-1) on here"});
  auto three = fixture.job("launch-3");
  two.reset();
  CHECK(one->refresh() == Names{"job launch-3 on here"});
  one.reset();
  CHECK(three->refresh().empty());
  three.reset();
  CHECK(fs::is_empty(fixture.directory.path()));
}

TEST_CASE("jobs with long names full of escapes see each other") {
  const RegistryFixture fixture;
  const auto text = [](char last) { return std::string(299, '\x01') + last; };
  JobRegistry one(fixture.file, {"1" + text('"'), text('\\'), text('\xff')});
  JobRegistry two(fixture.file, {"2" + text('"'), text('\\'), text('\xff')});
  JobRegistry again(fixture.file, {"1" + text('"'), text('\\'), text('\xff')});
  one.refresh();
  two.refresh();
  again.refresh();
  REQUIRE(one.refresh().size() == 1);
  CHECK(one.refresh().front().rfind("job \x01", 0) == 0);
  CHECK(two.refresh().size() == 2);
  const FileIdentity written = save("{}");
  one.about_to_write(written.sha256);
  one.has_written(written);
  CHECK(two.writer_of(written));
}

TEST_CASE("a job without a live rank is not named and its last write is still known as its own") {
  const RegistryFixture fixture;
  const auto one = fixture.job("launch-1");
  const auto two = fixture.job("launch-2");
  REQUIRE(two->refresh().size() == 1);
  one->note_ranks(JobRegistry::Ranks::gone);
  CHECK(two->refresh().empty());
  const FileIdentity written = save("{}");
  one->about_to_write(written.sha256);
  one->has_written(written);
  CHECK(two->refresh().empty());
  CHECK(two->writer_of(written) == "job launch-1 on here");
  one->note_ranks(JobRegistry::Ranks::live);  // started again under the same launch id
  CHECK(two->refresh() == Names{"job launch-1 on here"});
}

TEST_CASE("an earlier hub of the same launch is not another job") {
  const RegistryFixture fixture;
  const auto one = fixture.job("launch-1");
  const auto again = fixture.job("launch-1");
  CHECK(one->refresh().empty());
}

TEST_CASE("a removed file is made again and the jobs see each other again") {
  const RegistryFixture fixture;
  const auto one = fixture.job("launch-1");
  const auto two = fixture.job("launch-2");
  fs::remove(fixture.file);
  CHECK(two->refresh().empty());
  CHECK(one->refresh() == Names{"job launch-2 on here"});
  CHECK(two->refresh() == Names{"job launch-1 on here"});
}

TEST_CASE("a write is attributed to its job before and after it and a later save to the user") {
  const RegistryFixture fixture;
  const auto one = fixture.job("launch-1");
  const auto two = fixture.job("launch-2");
  const FileIdentity written = save("{}");
  CHECK_FALSE(two->writer_of(written));
  one->about_to_write(written.sha256);
  CHECK(two->writer_of(written) == "job launch-1 on here");
  CHECK_FALSE(two->writer_of(save("{ }")));
  one->has_written(written);
  CHECK(two->writer_of(written) == "job launch-1 on here");
  FileIdentity same_bytes = written;
  same_bytes.mtime_ns += 4'000'000;
  CHECK_FALSE(two->writer_of(same_bytes));
  CHECK_FALSE(one->writer_of(written));
}

TEST_CASE("a save of announced bytes is the user's if it comes much later") {
  const RegistryFixture fixture;
  const auto one = fixture.job("launch-1");
  const auto two = fixture.job("launch-2");
  FileIdentity late = save("{}");
  one->about_to_write(late.sha256);
  late.mtime_ns += 60'000'000'000;
  CHECK_FALSE(two->writer_of(late));
}

// How a job deals with a file that was planted in the registry's place.
struct Outcome {
  bool shows_no_job;
  bool leaves_it_alone;
};

Outcome with_planted(const std::function<void(const fs::path&)>& plant) {
  const RegistryFixture fixture;
  plant(fixture.file);
  struct stat before {};
  REQUIRE(stat(fixture.file.c_str(), &before) == 0);
  bool shows_no_job = false;
  {
    JobRegistry job(fixture.file, {"launch-1", "", "here"});
    shows_no_job = job.refresh().empty() && !job.writer_of(save("{}"));
  }
  struct stat after {};
  const bool is_there = stat(fixture.file.c_str(), &after) == 0 && after.st_ino == before.st_ino;
  const bool is_unchanged = after.st_size == before.st_size &&
                            after.st_mtim.tv_sec == before.st_mtim.tv_sec &&
                            after.st_mtim.tv_nsec == before.st_mtim.tv_nsec;
  return {shows_no_job, is_there && is_unchanged};
}

TEST_CASE("a planted file shows no other job and is left alone unless it could be a registry") {
  const auto check_left_alone = [](const std::function<void(const fs::path&)>& plant) {
    const Outcome outcome = with_planted(plant);
    CHECK(outcome.shows_no_job);
    CHECK(outcome.leaves_it_alone);
  };
  check_left_alone([](const fs::path& file) { fs::create_symlink("/dev/zero", file); });
  check_left_alone([](const fs::path& file) {
    write_text(file.parent_path() / "mine", "mine");
    fs::create_symlink("mine", file);
  });
  check_left_alone([](const fs::path& file) { REQUIRE(mkfifo(file.c_str(), 0666) == 0); });
  check_left_alone([](const fs::path& file) { fs::create_directory(file); });
  check_left_alone([](const fs::path& file) { write_text(file, std::string(1 << 20, 'x')); });
  CHECK(with_planted([](const fs::path& file) { write_text(file, std::string(5000, '{')); }).shows_no_job);
}

}  // namespace
}  // namespace gradmon
