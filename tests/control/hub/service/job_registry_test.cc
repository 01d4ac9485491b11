// SPDX-License-Identifier: Apache-2.0
#include "control/hub/service/job_registry.h"

#include <sys/stat.h>

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

struct Place {
  TemporaryDirectory directory;
  fs::path file = directory / ".config.json.gradmon-jobs";

  std::unique_ptr<JobRegistry> job(const std::string& launch, const std::string& name = "") const {
    auto made = std::make_unique<JobRegistry>(file, JobRegistry::Job{launch, name, "here"});
    made->refresh();
    return made;
  }
};

FileIdentity save(const std::string& text) {
  return {wall_now() * 1'000'000, text.size(), sha256_of(text)};
}

TEST_CASE("jobs with one config see each other while they live, and the last leaves nothing") {
  const Place place;
  auto one = place.job("launch-1", "train.py");
  CHECK(one->refresh().empty());
  auto two = place.job("launch-2");
  CHECK(one->refresh() == Names{"job launch-2 on here"});
  CHECK(two->refresh() == Names{"job train.py (launch launch-1) on here"});
  auto three = place.job("launch-3");
  two.reset();
  CHECK(one->refresh() == Names{"job launch-3 on here"});
  one.reset();
  CHECK(three->refresh().empty());
  three.reset();
  CHECK(fs::is_empty(place.directory.path()));
}

TEST_CASE("jobs with long names full of escapes see each other") {
  const Place place;
  const auto text = [](char last) { return std::string(299, '\x01') + last; };
  JobRegistry one(place.file, {"1" + text('"'), text('\\'), text('\xff')});
  JobRegistry two(place.file, {"2" + text('"'), text('\\'), text('\xff')});
  JobRegistry again(place.file, {"1" + text('"'), text('\\'), text('\xff')});
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

TEST_CASE("the same launch is no other job: its hub was started anew") {
  const Place place;
  const auto one = place.job("launch-1");
  const auto again = place.job("launch-1");
  CHECK(one->refresh().empty());
}

TEST_CASE("a file that was removed is made anew and all see each other again") {
  const Place place;
  const auto one = place.job("launch-1");
  const auto two = place.job("launch-2");
  fs::remove(place.file);
  CHECK(two->refresh().empty());
  CHECK(one->refresh() == Names{"job launch-2 on here"});
  CHECK(two->refresh() == Names{"job launch-1 on here"});
}

TEST_CASE("what a job writes is known to be its own before and after, and a later save is the user's") {
  const Place place;
  const auto one = place.job("launch-1");
  const auto two = place.job("launch-2");
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

TEST_CASE("bytes that were announced and came much later are the user's") {
  const Place place;
  const auto one = place.job("launch-1");
  const auto two = place.job("launch-2");
  FileIdentity late = save("{}");
  one->about_to_write(late.sha256);
  late.mtime_ns += 60'000'000'000;
  CHECK_FALSE(two->writer_of(late));
}

TEST_CASE("what somebody plants there is not opened, not believed, and ends nothing") {
  const auto sees_nobody = [](const std::function<void(const fs::path&)>& plant) {
    const Place place;
    plant(place.file);
    JobRegistry job(place.file, {"launch-1", "", "here"});
    return job.refresh().empty() && !job.writer_of(save("{}"));
  };
  CHECK(sees_nobody([](const fs::path& file) { fs::create_symlink("/dev/zero", file); }));
  CHECK(sees_nobody([](const fs::path& file) { REQUIRE(mkfifo(file.c_str(), 0666) == 0); }));
  CHECK(sees_nobody([](const fs::path& file) { fs::create_directory(file); }));
  CHECK(sees_nobody([](const fs::path& file) { write_text(file, std::string(1 << 20, 'x')); }));
  CHECK(sees_nobody([](const fs::path& file) { write_text(file, std::string(5000, '{')); }));
}

}  // namespace
}  // namespace gradmon
