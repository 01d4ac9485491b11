// SPDX-License-Identifier: Apache-2.0
// actv and actv_grad: the inputs and outputs of modules, and their gradients.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "hooks/activations/activation_choice.h"
#include "hooks/activations/activation_rows.h"
#include "hooks/names/watched_model.h"
#include "hooks/observe/forward_listener.h"
#include "hooks/observe/ongoing_forwards.h"
#include "hooks/observe/tensor_gradient.h"
#include "hooks/rows/hook_settings.h"
#include "hooks/rows/probe.h"

namespace gradmon {

// Reads inputs before the forward (in-place modules overwrite them), outputs after it, and gradients when
// they arrive in backward, on any thread. Keeps only numbers until the rows are written. The gradient of
// an output is the whole gradient of the tensor. The gradient of an input is the part that comes through
// this module, as in torch's full backward hook, without other parts (a residual). An input that requires
// no gradient has no gradient row. An input whose part cannot be separated, because the module gets the
// tensor twice or returns it unchanged, is counted as not applicable. A recomputed forward adds no actv
// rows, but the actv_grad rows come from its graph. If several passes go through one graph, the last
// gradient counts.
//
// Rows of each kind are in the order in which the values were read. Targets: `{module}.input` or
// `.output`, followed by `_{i}` or `_{key}` if there are several tensors, and by `@2` for a second call in
// one micro step; `{name}.output` for a tapped value. A gradient that arrives after its step has ended is
// discarded and counted as not applicable.
class ActivationProbe : public Probe, public ForwardListener {
 public:
  // `stream` and `fuse` must outlive this.
  ActivationProbe(const HookSettings& settings, const WatchedModel& model, RecordStream& stream,
                  HookFuse& fuse);
  ~ActivationProbe() override;

  void begin_step(Step step) override;
  void disarm() noexcept override;
  void write_rows(RowWriter& rows) override;
  ForwardListener* forward_listener() noexcept override { return this; }

  void before_forward(const ForwardVisit& visit, const ForwardTensors& inputs) override;
  void after_forward(const ForwardVisit& visit, const ForwardTensors& outputs) override;
  void abandoned(const ForwardVisit& visit) override;
  void tapped(const ForwardVisit& within, std::string_view name, const at::Tensor& tensor) override;

  // The number of tensors read, and of readings reused.
  ReadingCache::Counts readings() const { return rows_->counts(); }

 private:
  static constexpr std::size_t kMostTappedNames = std::size_t{1} << 16U;  // per plan

  struct Target {
    std::string name;  // in the rows
    int vpp_stage = 0;
    ActivationChoice choice;
  };
  // The inputs of a forward that is running. Holds no tensor.
  struct Call {
    std::vector<ActivationRows::Row> rows;
    std::vector<GradientSource> sources;  // of each row
    std::uint64_t first_node = 0;         // next_node() before the forward
  };

  ActivationRows::Row row(const Target& target, const ForwardVisit& visit, Side side,
                          const std::string& suffix) const;
  // Returns the selected elements. Warns once per target and side if the selection does not fit.
  std::vector<const ForwardTensors::Element*> chosen(const Target& target, Side side,
                                                     const ForwardTensors& tensors);
  void read(const Target& target, const ForwardVisit& visit, Side side, const ForwardTensors& tensors);
  Call note_inputs(const Target& target, const ForwardVisit& visit, const ForwardTensors& inputs);
  void watch_inputs(Call call, const ForwardTensors& outputs);
  void watch_outputs(const Target& target, const ForwardVisit& visit, const ForwardTensors& outputs);
  TensorGradients::Body body(ActivationRows::Row row) const;
  TensorGradients::OnFailure on_failure(const ActivationRows::Row& row) const;
  // After kMostTappedNames names, returns a target that chooses nothing.
  const Target& tapped_target(int vpp_stage, std::string_view name);

  // Constant after construction.
  const ActivationSettings settings_;
  const TargetSelection selection_;
  RecordStream& stream_;
  std::vector<Target> targets_;  // by module
  ScopeText plain_scope_;        // of plain tensors (not DTensors)

  // Own synchronisation.
  const std::shared_ptr<ActivationRows> rows_;  // hooks hold it weakly
  TensorGradients gradients_;
  OngoingForwards<Call> calls_;

  std::mutex mutex_;
  // Guarded by mutex_.
  std::map<std::pair<int, std::string>, Target> tapped_;
  bool told_of_names_ = false;
  std::set<std::pair<std::string, Side>> warned_;
};

}  // namespace gradmon
