// SPDX-License-Identifier: Apache-2.0
#include <malloc.h>
#include <unistd.h>

#include <ATen/Context.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/dropout.h>
#include <ATen/record_function.h>
#include <gradmon/monitor.h>
#include <gradmon/observe.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/optim/adamw.h>
#include <torch/utils.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "control/config/config_parser.h"
#include "hooks/rows/optimizer_state.h"
#include "runtime/collect/collection.h"
#include "tests/hooks/gloo_ranks.h"
#include "tests/hooks/gradient_hooks_on.h"
#include "tests/support/catch.h"
#include "tests/support/char_transformer.h"
#include "tests/support/real_job.h"
#include "tests/support/scale.h"
#include "tests/support/training_step.h"

namespace gradmon {
namespace {

// --- A training job with everything that a hook could disturb: shared, frozen and unused
// parameters, in-place modules, recomputation, random numbers, collectives.

struct Variation {
  std::string name;
  TransformerShape shape;
  std::vector<std::string> frozen;
};

// The config keys of one kind.
struct KindKeys {
  std::string name;
  std::string keys;
};

constexpr std::int64_t kContext = 4;

void append(std::string& bytes, const at::Tensor& tensor) {
  if (!tensor.defined()) return bytes.push_back('-');
  const at::Tensor values = tensor.detach().contiguous();
  bytes.append(static_cast<const char*>(values.data_ptr()), values.nbytes());
}

// Sets the seed before the model draws its weights.
const TransformerShape& with_seed(const TransformerShape& shape) {
  torch::manual_seed(7);
  return shape;
}

// Two variations: activations kept and no weight shared; and activations recomputed, a
// weight shared, a module in place, and more experts than tokens.
std::vector<Variation> variations() {
  TransformerShape kept{1, 16, kContext};
  TransformerShape recomputed = kept;
  recomputed.experts = 12;
  recomputed.activation = Activation::relu_in_place;
  recomputed.block_values = BlockValues::recomputed;
  recomputed.head_weight = HeadWeight::token_embedding;
  return {{"kept", kept, {}}, {"recomputed", recomputed, {"norm1"}}};
}

std::vector<KindKeys> kinds_alone() {
  return {{"gradients", R"("wg_distribution": true)"},
          {"gradients of micro batches", R"("wg_distribution": true, "monitor_mbs_grad": true)"},
          {"weights", R"("param_distribution": true)"},
          {"moments", R"("mv_distribution": true)"},
          {"directions", R"("mg_direction": true)"},
          {"activations", R"("xy_distribution": true, "all_xy": true)"},
          {"communication", R"("cc_distribution": {"enable": true, "cc_pre_hook": true})"},
          {"L2 features", R"("recording_l2_features": true, "sa_order": "b,s,h,d", "l2_targets": {
              "attention_hook": ["blocks.0.attention.core"], "linear_hook": [],
              "moe_router_weight_hook": ["blocks.0.mixture.router"],
              "moe_router_logit_hook": ["blocks.0.mixture.router"]})"},
          {"scalars", R"("scalars": {"loss": "records", "local_norm": "records"})"},
          {"stacks", R"("stack_info": true)"},
          {"structure", R"("print_struct": true)"}};
}

// Joins the keys of all kinds but the structure, after which the loop may end.
std::string all_kinds() {
  std::string keys = R"("ops": ["norm", "min", "max", "mean", "nans", "zeros"])";
  for (const KindKeys& kind : kinds_alone()) {
    // The kind "gradients of micro batches" has the same key; the structure lets the loop end.
    if (kind.name != "gradients" && kind.name != "structure") keys += ", " + kind.keys;
  }
  return keys;
}

class VariedTraining {
 public:
  static constexpr int kMicroBatches = 2;

  // The group must outlive the training; null: no collective is called.
  VariedTraining(const Variation& variation, GlooGroup* group)
      : model_(with_seed(variation.shape)),
        optimizer_((freeze(model_, variation.frozen), trainable_parameters(model_)),
                   torch::optim::AdamWOptions(0.01)),
        group_(group) {}

  CharTransformer& model() { return model_; }
  torch::optim::AdamW& optimizer() { return optimizer_; }
  // One training step. `update` must step the optimizer.
  void step(const std::function<void(double loss)>& update) {
    unset_gradients(trainable_parameters(model_));
    double loss_of_step = 0;
    for (int micro = 0; micro < kMicroBatches; ++micro) {
      const at::Tensor loss = loss_of(micro);
      loss.backward();
      loss_of_step += loss.item<double>();
    }
    if (group_ != nullptr) {
      for (const at::Tensor& parameter : trainable_parameters(model_)) {
        if (parameter.grad().defined()) group_->all_reduce({parameter.grad()})->wait();
      }
    }
    update(loss_of_step);
    ++steps_done_;
  }

  // Bytes of all parameters and gradients, their version counters, and the state
  // of torch's random generator.
  std::string fingerprint() const {
    std::string bytes;
    for (const auto& item : distinct_parameters(model_)) {
      append(bytes, item.value());
      append(bytes, item.value().grad());
      bytes += std::to_string(item.value()._version()) + " ";
    }
    append(bytes, at::globalContext().defaultGenerator(at::kCPU).get_state());
    return bytes;
  }
  // The number of hooks on parameters and their accumulators, plus one if forward calls
  // are observed, plus one if the dispatcher is.
  std::size_t hooks() const {
    std::size_t count = (forward_entry::open() ? 1 : 0) + (at::hasGlobalCallbacks() ? 1 : 0);
    for (const auto& item : distinct_parameters(model_)) count += gradient_hooks_on(item.value());
    return count;
  }
  // The number of trainable parameters that have no gradient now.
  std::size_t unused() const {
    std::size_t count = 0;
    for (const at::Tensor& parameter : trainable_parameters(model_))
      count += parameter.grad().defined() ? 0 : 1;
    return count;
  }

 private:
  at::Tensor loss_of(int micro) {
    const at::Tensor bytes =
        (at::arange(kContext + 1, at::kLong) * 37 + steps_done_ * 13 + micro * 5).remainder(256);
    const at::Tensor logits = observe(model_)(bytes.slice(0, 0, kContext).reshape({1, kContext}));
    return at::cross_entropy_loss(at::dropout(logits, 0.1, true).view({kContext, -1}), bytes.slice(0, 1));
  }

  CharTransformer model_;
  torch::optim::AdamW optimizer_;
  GlooGroup* const group_;
  int steps_done_ = 0;
};

// --- No kind changes a bit of training, alone or together with the others, and none
// leaves a hook behind.

constexpr int kSteps = 12;
constexpr int kStepsOfPlan = 8;  // steps 0, 2, 4 and 6 are collected

std::string without_monitor(const Variation& variation) {
  std::string fingerprint;
  run_ranks(1, [&](GlooGroup& group) {
    VariedTraining training(variation, &group);
    for (int i = 0; i < kSteps; ++i) training.step([&](double) { training.optimizer().step(); });
    fingerprint = training.fingerprint();
  });
  return fingerprint;
}

struct MonitoredRun {
  std::string fingerprint;
  std::size_t hooks_within = 0;      // the most while the plan was in force
  std::size_t hooks_afterwards = 0;  // the most after it had ended
  std::size_t unused = 0;
  std::size_t files = 0;
  RankStatus status;
};

std::size_t count_output_files(const std::filesystem::path& directory) {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    count += entry.path().extension() == ".csv" || name == "module_struct.json" ? 1 : 0;
  }
  return count;
}

MonitoredRun with_monitor(const Variation& variation, const std::string& keys) {
  MonitoredRun run;
  const TemporaryDirectory directory;
  keep_jobs_in(directory);
  write_text(directory / "config.json", "{" + keys + R"(, "step_interval": 2, "collect_times": 4})");
  MonitorOptions options;
  options.output_dir = directory / "out";
  options.dynamic = false;
  options.grad_acc_steps = VariedTraining::kMicroBatches;
  run_ranks(1, [&](GlooGroup& group) {
    Monitor monitor(directory / "config.json", options);
    VariedTraining training(variation, &group);
    monitor.watch(training.model(), training.optimizer());
    for (int i = 0; i < kSteps; ++i) {
      std::size_t& hooks = i < kStepsOfPlan - 1 ? run.hooks_within : run.hooks_afterwards;
      if (i != kStepsOfPlan - 1) hooks = std::max(hooks, training.hooks());
      training.step([&](double loss) {
        monitor.scalar("loss", loss);
        monitor.step(training.optimizer());
      });
    }
    run.fingerprint = training.fingerprint();
    run.unused = training.unused();
    monitor.stop();
    run.status = monitor.status().ranks.front();
  });
  run.files = count_output_files(directory / "out");
  return run;
}

TEST_CASE("each kind alone and all together leave training bit-identical") {
  for (const Variation& variation : variations()) {
    const std::string alone = without_monitor(variation);
    std::vector<KindKeys> kinds = kinds_alone();
    kinds.push_back({"all", all_kinds()});
    for (const KindKeys& kind : kinds) {
      const MonitoredRun run = with_monitor(variation, kind.keys);
      CAPTURE(variation.name, kind.name, run.status.error);
      CHECK((run.fingerprint == alone));
      CHECK(run.status.error.empty());
      CHECK(run.hooks_afterwards == 0);
      CHECK(run.files > 0);
      if (kind.name == "all") CHECK(run.hooks_within > 10);
      if (variation.shape.experts > 0) CHECK(run.unused > 0);
    }
  }
}

TEST_CASE("no hook exists before a plan is on or after it has run out") {
  const TemporaryDirectory directory;
  keep_jobs_in(directory);
  write_text(directory / "config.json",
             "{" + kinds_alone()[0].keys + R"(, "dynamic_on": true, "collect_times": 5})");
  MonitorOptions options;
  options.output_dir = directory / "out";
  options.dynamic = true;
  Monitor monitor(directory / "config.json", options);
  VariedTraining training(variations()[0], nullptr);
  monitor.watch(training.model(), training.optimizer());
  const std::size_t trainable = trainable_parameters(training.model()).size();
  for (int i = 0; i < 50; ++i) {
    CAPTURE(i);
    REQUIRE(training.hooks() == (i >= 1 && i <= 5 ? trainable : 0));
    training.step([&](double) { monitor.step(training.optimizer()); });
  }
  monitor.stop();
  CHECK(monitor.status().ranks.front().error.empty());
}

TEST_CASE("the fingerprint changes with one more random number") {
  const std::string alone = without_monitor(variations()[0]);
  run_ranks(1, [&](GlooGroup& group) {
    VariedTraining training(variations()[0], &group);
    for (int i = 0; i < kSteps; ++i) training.step([&](double) { training.optimizer().step(); });
    CHECK((training.fingerprint() == alone));
    at::rand({1});
    CHECK((training.fingerprint() != alone));
  });
}

// --- Switching all kinds on and off again and again changes no bit of training and leaks
// no memory.

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
    step(Collection::Collect::yes);
    hooks_ = std::max(hooks_, training_.hooks());
    if (ends_by_itself) {
      collection_.end_collection(step_);
    } else {
      const Revision off{revision_.value + 1};
      collection_.swap({off, off_, step_}, nullptr);
      revision_ = off;
    }
    step(Collection::Collect::no);
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

  void step(Collection::Collect collect) {
    collection_.begin_step(step_, collect, 0);
    training_.step([&](double loss) {
      torch::optim::AdamW& optimizer = training_.optimizer();
      if (collect == Collection::Collect::no) return void(optimizer.step());
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
