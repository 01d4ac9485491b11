// SPDX-License-Identifier: Apache-2.0
// What keep_last and AnomalyRankDivergence add: the hooks that read for them, and the digests.
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "control/link/replica_outbox.h"
#include "hooks/hook_set.h"
#include "runtime/collect/replica_steps.h"
#include "tests/benchmarks/benches.h"
#include "tests/benchmarks/collecting_rig.h"
#include "tests/benchmarks/measure/range.h"

namespace gradmon {
namespace {

constexpr int kParameters = 2000;  // of four elements: the fixed cost of a row

// Keeps the records of the last step.
class LastStep : public RecordStream {
 public:
  explicit LastStep(NameTable& names) : names_(names) {}
  std::uint32_t target_id(int vpp_stage, std::string_view name) override {
    return names_.intern(name, vpp_stage);
  }
  std::uint32_t shape_id(std::string_view shape) override { return names_.intern(shape); }
  bool push(const Record& record) noexcept override {
    records.push_back(record);
    return true;
  }
  bool push(const Histogram&) noexcept override { return true; }
  void publish(Document, std::string) noexcept override {}

  std::vector<Record> records;

 private:
  NameTable& names_;
};

class ManyParameters {
 public:
  ManyParameters() {
    for (int i = 0; i < kParameters; ++i)
      model_.parameters.push_back({"p" + std::to_string(i), 0, at::full({4}, 1.0).requires_grad_()});
  }
  const WatchedModel& model() const { return model_; }
  void backward() {
    at::Tensor loss;
    for (WatchedParameter& parameter : model_.parameters) {
      parameter.tensor->mutable_grad().reset();
      const at::Tensor part = (*parameter.tensor * 0.5).sum();
      loss = loss.defined() ? loss + part : part;
    }
    loss.backward();
  }

 private:
  WatchedModel model_;
};

// The nanoseconds of the hooks on the training thread for each of `kinds` rows of a parameter, in each step.
std::vector<double> hook_ns(const HookSettings& settings, int kinds, int steps, LastStep& stream) {
  ManyParameters parameters;
  HookSet hooks(settings, parameters.model(), stream);
  std::vector<double> nanoseconds;
  for (std::int64_t step = 0; step <= steps; ++step) {
    stream.records.clear();
    const auto before = hooks.hook_time();
    hooks.begin_step(Step{step}, HookSet::Collect::yes);
    parameters.backward();
    hooks.before_update({});
    hooks.after_update({});
    hooks.end_step();
    const auto spent = hooks.hook_time() - before;
    if (step > 0) nanoseconds.push_back(static_cast<double>(spent.count()) / (kParameters * kinds));
  }
  return nanoseconds;
}

// The nanoseconds of the writer thread for each row that is compared.
std::vector<double> digest_ns(const std::vector<Record>& rows, const std::shared_ptr<NameTable>& names,
                              int steps) {
  ReplicaOutbox outbox(std::make_shared<Mailbox>());
  ReplicaRowReader reader(replica_group_of({0, 1}), 1e-6, names,
                          [&outbox](ReplicaStep step) { outbox.put(std::move(step)); });
  std::vector<double> nanoseconds;
  for (std::int64_t step = 0; step <= steps; ++step) {
    const double seconds = seconds_of([&] { reader.on_records(Step{step}, rows); });
    if (step > 0) nanoseconds.push_back(seconds * 1e9 / static_cast<double>(rows.size()));
  }
  return nanoseconds;
}

Figure figure_of(const char* name, const std::string& what, const std::vector<double>& nanoseconds) {
  Figure figure;
  figure.name = name;
  figure.value = range_of(nanoseconds).median;
  figure.unit = "ns";
  figure.how = what + "; 2,000 parameters of four elements; minimum, median and maximum of " +
               std::to_string(nanoseconds.size()) + " steps: " + text_of(range_of(nanoseconds));
  return figure;
}

std::vector<Figure> measure(Effort effort) {
  const int steps = effort == Effort::quick ? 2 : 60;
  const auto names = std::make_shared<NameTable>();
  LastStep stream(*names);
  HookSettings recorded;
  recorded.reduced_gradients = true;
  recorded.ops = static_cast<ValueMask>(bit_of(Op::norm) | bit_of(Op::nans));
  const auto keep_last = hook_ns(recorded, 1, steps, stream);
  HookSettings compared = recorded;
  compared.weights = true;
  const auto divergence = hook_ns(compared, 3, steps, stream);
  return {
      figure_of("keep_last_ns",
                "what keep_last costs the training thread for a parameter in a step that is not collected",
                keep_last),
      figure_of("divergence_ns",
                "what AnomalyRankDivergence costs the training thread of a rank that is not the first of "
                "its group, for each row",
                divergence),
      figure_of("divergence_digest_ns",
                "what AnomalyRankDivergence costs the writer thread of every rank, for each row",
                digest_ns(stream.records, names, steps))};
}

}  // namespace

Bench replica_cost() { return {{"keep_last_ns", "divergence_ns", "divergence_digest_ns"}, measure}; }

}  // namespace gradmon
