// SPDX-License-Identifier: Apache-2.0
// Switching all kinds on and off again and again changes no bit of training and leaks
// no memory.
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <stdexcept>
#include <vector>

#include "control/config/config_parser.h"
#include "control/debian_version.h"
#include "hooks/rows/libtorch_optimizer_state.h"
#include "runtime/collect/collection.h"
#include "tests/hooks/gloo_ranks.h"
#include "tests/support/real_job.h"
#include "tests/support/scale.h"
#include "tests/whole/neutral/varied_training.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

namespace fs = std::filesystem;

PlanPtr plan(bool on) {
  Plan made;
  made.on = on;
  made.config_text = "{" + all_kinds() + "}";
  return std::make_shared<const Plan>(std::move(made));
}

WatchedModel watched(torch::nn::Module& model) {
  WatchedModel all;
  for (const auto& item : model.named_parameters()) all.parameters.push_back({item.key(), 0, item.value()});
  all.modules.push_back({"", 0, &model});
  for (const auto& item : model.named_modules("", false))
    all.modules.push_back({item.key(), 0, item.value().get()});
  return all;
}

// A training job whose plan changes at every step boundary, as Monitor::Session changes it.
class SwitchedTraining {
 public:
  SwitchedTraining(const Variation& variation, GlooGroup& group)
      : training_(variation, &group),
        directory_(std::make_shared<RunDirectory>(scratch_ / "out", Rank{0}, "flat",
                                                  [] { return std::optional(JobIdentity{}); })),
        collection_(settings(directory_), [this](Revision revision, Step) { finished(revision); }) {
    collection_.add_model(watched(training_.model()));
  }

  // Switches on and makes a collected step; then switches off, or lets the plan run out, and makes a step
  // that is not collected.
  void switch_on_and_off(bool ends_by_itself) {
    revision_.value += 1;
    collection_.swap({revision_, on_, step_}, config_);
    step(HookSet::Collect::yes);
    hooks_ = std::max(hooks_, training_.hooks());
    if (ends_by_itself) {
      collection_.end_collection(step_);
    } else {
      const Revision off{revision_.value + 1};
      collection_.swap({off, off_, step_}, nullptr);
      revision_ = off;
    }
    step(HookSet::Collect::no);
  }

  // Waits until all rows are on disk, then removes them: they would fill the disk.
  void wait_until_written() {
    switch_on_and_off(true);
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::seconds(120), [&] { return finished_ == revision_; }))
      throw std::runtime_error("the rows were not written within two minutes");
    for (const auto& run : fs::directory_iterator(scratch_ / "out")) fs::remove_all(run);
  }

  std::string fingerprint() const { return training_.fingerprint(); }
  std::size_t hooks_while_on() const { return hooks_; }
  std::size_t hooks_now() const { return training_.hooks(); }
  CollectingReport report() const { return collection_.report(); }

 private:
  static Collection::Settings settings(const std::shared_ptr<RunDirectory>& directory) {
    Collection::Settings made;
    made.directory = directory;
    made.grad_acc_steps = VariedTraining::kMicroBatches;
    return made;
  }

  void step(HookSet::Collect collect) {
    collection_.begin_step(step_, collect, 0);
    training_.step([&](double loss) {
      torch::optim::AdamW& optimizer = training_.optimizer();
      if (collect == HookSet::Collect::no) return void(optimizer.step());
      collection_.report_scalar("loss", loss);
      const LibtorchOptimizerState state(optimizer);
      const std::vector<at::Tensor>& parameters = optimizer.param_groups().front().params();
      collection_.before_update(parameters, &state);
      optimizer.step();
      collection_.after_update(parameters, &state);
      collection_.end_step(0, true);
    });
    step_.value += 1;
  }

  void finished(Revision revision) {
    const std::lock_guard lock(mutex_);
    finished_ = revision;
    changed_.notify_all();
  }

  const TemporaryDirectory scratch_;
  const PlanPtr on_ = plan(true), off_ = plan(false);
  const std::shared_ptr<const Config> config_ =
      std::make_shared<const Config>(parse_config(on_->config_text, "config").value().config);
  VariedTraining training_;
  Revision revision_;
  Step step_;
  std::size_t hooks_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  Revision finished_;  // guarded by mutex_
  const std::shared_ptr<RunDirectory> directory_;
  Collection collection_;  // Keep last: calls finished().
};

struct Memory {
  std::int64_t resident = 0;  // bytes
  std::int64_t in_use = 0;    // in bytes, of malloc; 0 if a sanitizer replaces malloc
};

Memory memory() {
  malloc_trim(0);
  std::ifstream statm("/proc/self/statm");
  std::int64_t size = 0, resident = 0;
  statm >> size >> resident;
  return {resident * sysconf(_SC_PAGESIZE), static_cast<std::int64_t>(mallinfo2().uordblks)};
}

TEST_CASE("training is bit-identical when all kinds are switched at every step") {
  constexpr int kSwitches = 15;
  for (const Variation& variation : variations()) {
    run_ranks(1, [&](GlooGroup& group) {
      CAPTURE(variation.name);
      VariedTraining alone(variation, &group);
      for (int i = 0; i < 2 * kSwitches; ++i) alone.step([&](double) { alone.optimizer().step(); });
      const std::string expected = alone.fingerprint();
      SwitchedTraining job(variation, group);
      for (int i = 0; i < kSwitches; ++i) job.switch_on_and_off(i % 2 == 0);
      CHECK((job.fingerprint() == expected));
      CHECK(job.hooks_while_on() > 10);
      CHECK(job.report().error.empty());
    });
  }
}

TEST_CASE("switching all kinds on and off again and again uses no more memory") {
  constexpr int kBetweenSettling = 25, kWarmUp = 50, kStretches = 3;
  const int switches = scaled(25, 2'500);  // per stretch
  run_ranks(1, [&](GlooGroup& group) {
    Variation small = variations().back();
    small.shape.experts = 3;
    SwitchedTraining job(small, group);
    const auto run = [&](int count) {
      for (int i = 1; i <= count; ++i)
        i % kBetweenSettling == 0 ? job.wait_until_written() : job.switch_on_and_off(i % 2 == 0);
      return memory();
    };
    const Memory first = run(kWarmUp);
    if (first.in_use == 0) WARN("malloc is the sanitizer's, which looks for leaks itself");
    // The queue and the writer keep memory for their largest backlog, which may occur in any
    // stretch. A leak at each switch shows in every stretch, so the smallest growth is checked.
    Memory last = first;
    std::vector<std::int64_t> grown;
    for (int i = 0; i < kStretches; ++i) {
      const Memory now = run(switches);
      grown.push_back(now.in_use - last.in_use);
      last = now;
    }
    CAPTURE(switches, grown, first.resident, last.resident);
    CHECK(*std::min_element(grown.begin(), grown.end()) < 64 * switches);
    if (first.in_use != 0) CHECK(last.resident - first.resident < 8 * 1024 * 1024);
    CHECK(job.hooks_while_on() > 10);
    CHECK(job.hooks_now() == 0);
    CHECK(job.report().error.empty());
    CHECK(job.report().dropped == 0);
  });
}

}  // namespace
}  // namespace gradmon
