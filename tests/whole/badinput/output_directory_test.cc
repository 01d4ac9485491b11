// SPDX-License-Identifier: Apache-2.0
#include <sched.h>
#include <sys/mount.h>

#include <gradmon/monitor.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <map>
#include <thread>

#include "control/debian_version.h"
#include "runtime/environment.h"
#include "tests/support/temporary_directory.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

// --- Rank and world size from environment variables.

std::string rank_or_error(std::map<std::string, std::string> variables) {
  const auto read = read_environment([&](const char* name) -> std::optional<std::string> {
    const auto at = variables.find(name);
    return at == variables.end() ? std::nullopt : std::optional(at->second);
  });
  return read ? "rank " + std::to_string(read->rank) + " of " + std::to_string(read->world_size)
              : read.error();
}

TEST_CASE("without RANK and WORLD_SIZE there is one rank and invalid values are refused with the reason") {
  CHECK(rank_or_error({}) == "rank 0 of 1");
  CHECK(rank_or_error({{"WORLD_SIZE", "1"}}) == "rank 0 of 1");
  CHECK(rank_or_error({{"WORLD_SIZE", "2"}}) == "WORLD_SIZE=\"2\" without RANK");
  CHECK(rank_or_error({{"RANK", "abc"}, {"WORLD_SIZE", "2"}}) == "RANK=\"abc\": expected an integer >= 0");
  CHECK(rank_or_error({{"RANK", "2"}, {"WORLD_SIZE", "2"}}) ==
        "RANK=\"2\": expected less than WORLD_SIZE (2)");
  CHECK(rank_or_error({{"RANK", "-1"}, {"WORLD_SIZE", "2"}}) == "RANK=\"-1\": expected an integer >= 0");
  CHECK(rank_or_error({{"RANK", "1"}, {"WORLD_SIZE", "many"}}) ==
        "WORLD_SIZE=\"many\": expected an integer >= 1");
}

// --- An output directory that becomes read-only while a job runs.

namespace fs = std::filesystem;

// A tmpfs that can be made read-only. Only the calling thread and the threads it
// starts see it, and it ends with them.
class OwnMount {
 public:
  explicit OwnMount(fs::path path) : path_(std::move(path)) {
    made_ = ::unshare(CLONE_NEWNS) == 0 &&
            ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
            ::mount("none", path_.c_str(), "tmpfs", 0, "size=4m") == 0;
  }
  bool made() const { return made_; }
  bool read_only() const { return remount(MS_RDONLY); }
  bool writable() const { return remount(0); }

 private:
  bool remount(unsigned long flags) const {
    return ::mount("none", path_.c_str(), "tmpfs", MS_REMOUNT | flags, "size=4m") == 0;
  }

  fs::path path_;
  bool made_ = false;
};

class Job {
 public:
  explicit Job(const fs::path& directory) : monitor_(config_in(directory), options_in(directory)) {
    monitor_.watch(*model_, optimizer_);
  }

  void train(int steps) {
    for (int i = 0; i < steps; ++i, ++step_) {
      optimizer_.zero_grad();
      model_->forward(torch::ones({2, 4})).sum().backward();
      monitor_.step(optimizer_);
    }
  }
  // Trains until the condition is true; false if it stays false too long.
  bool train_until(const std::function<bool()>& condition) {
    return eventually([&] {
      train(1);
      return condition();
    });
  }
  int step() const { return step_; }
  RankStatus status() const { return monitor_.status().ranks.front(); }

 private:
  static fs::path config_in(const fs::path& directory) {
    write_text(directory / "config.json", R"({"wg_distribution": true, "step_count_per_record": 1})");
    return directory / "config.json";
  }
  static MonitorOptions options_in(const fs::path& directory) {
    MonitorOptions options;
    options.output_dir = directory / "disk" / "out";
    options.dynamic = false;
    return options;
  }

  torch::nn::Linear model_{4, 3};
  torch::optim::SGD optimizer_{model_->parameters(), 0.1};
  Monitor monitor_;
  int step_ = 0;
};

bool is_there(const fs::path& directory, int step) {
  const std::string name = "grad_reduced_" + std::to_string(step) + "-" + std::to_string(step) + ".csv";
  const fs::recursive_directory_iterator files(directory);
  return std::any_of(begin(files), end(files),
                     [&](const auto& file) { return file.path().filename() == name; });
}

struct Outcome {
  bool mounted = false;
  bool written_before = false;
  bool reported = false;
  std::uint64_t dropped = 0;
  bool trained_meanwhile = false;
  bool written_again = false;
  std::string error_after;
};

Outcome train_across_read_only_period(const fs::path& directory) {
  Outcome out;
  const OwnMount disk(directory / "disk");
  out.mounted = disk.made();
  if (!out.mounted) return out;
  // In place of a file that the hub would hold open for writing: a mount with one cannot become read-only.
  fs::create_directories(directory / "disk" / "out" / ".gradmon" / "jobs.lock");
  Job job(directory);
  out.written_before = job.train_until([&] { return is_there(directory / "disk", 0); });
  if (!eventually([&] { return disk.read_only(); }))
    return out;  // Repeated: it fails while a file is open for writing.
  const int last_before = job.step();
  out.reported =
      job.train_until([&] { return job.status().error.find("Read-only file system") != std::string::npos; });
  out.dropped = job.status().dropped;
  out.trained_meanwhile = job.step() > last_before;
  if (!disk.writable()) return out;
  const int first_after = job.step();
  out.written_again = job.train_until(
      [&] { return is_there(directory / "disk", job.step() - 1) && job.step() > first_after; });
  eventually([&] { return job.status().error.empty(); });
  out.error_after = job.status().error;
  return out;
}

TEST_CASE(
    "rows lost to a read-only output directory are counted and reported and later rows are written again") {
  const TemporaryDirectory directory;
  keep_jobs_in(directory);
  fs::create_directory(directory / "disk");
  Outcome out;
  std::thread([&] { out = train_across_read_only_period(directory.path()); }).join();
  if (!out.mounted) {
    WARN("skipped: needs root, to mount a tmpfs");
    return;
  }
  CHECK(out.written_before);
  CHECK(out.reported);
  CHECK(out.dropped > 0);
  CHECK(out.trained_meanwhile);
  CHECK(out.written_again);
  CHECK(out.error_after.empty());
}

}  // namespace
}  // namespace gradmon
