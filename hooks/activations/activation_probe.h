// SPDX-License-Identifier: Apache-2.0
// actv and actv_grad: what goes into modules and comes out, and the gradients of it.
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
#include "hooks/observe/calls_under_way.h"
#include "hooks/observe/forward_listener.h"
#include "hooks/rows/hook_settings.h"
#include "hooks/rows/probe.h"
#include "hooks/observe/tensor_gradient.h"
#include "hooks/names/watched_model.h"

namespace gradmon {

// Inputs are read before the forward (in-place modules overwrite them), outputs
// after it, their gradients as they arrive in backward, wherever that runs; only
// numbers are kept until the rows are written. An output's gradient is the tensor's
// own. An input's is what comes through this module, as torch's full backward hook
// has it: not what reaches the tensor otherwise (a residual). An input that needs no
// gradient has none; one that cannot be told apart, since it is given twice or comes
// out as it went in, counts as not applicable. A recomputed forward has no values of its own,
// but its gradients are the ones that arrive; of several that do, as several passes
// go through one graph, the last.
//
// Records, each kind in the order in which the values came: target
// `{module}.input` or `.output`, with `_{i}` or `_{key}` where there are
// several, `@2` for a second call in one micro step; of a tapped value
// `{name}.output`. What arrives when its step has ended is not taken, and
// counts as not applicable.
class ActivationProbe : public Probe, public ForwardListener {
 public:
  // The stream and `fuse` outlive it.
  ActivationProbe(const HookSettings& settings, const WatchedModel& model, RecordStream& stream,
                  HookFuse& fuse);
  ~ActivationProbe() override;

  void begin_step(Step step) override;
  void disarm() noexcept override;
  void write_rows(RowWriter& rows) override;
  // Modules of which it wants something.
  std::size_t attached() const noexcept override;
  ForwardListener* forward_listener() noexcept override { return this; }

  void before_forward(const ForwardVisit& visit, const ForwardTensors& inputs) override;
  void after_forward(const ForwardVisit& visit, const ForwardTensors& outputs) override;
  void abandoned(const ForwardVisit& visit) override;
  void tapped(const ForwardVisit& within, std::string_view name, const at::Tensor& tensor) override;

  // Tensors read, and those that had been read already.
  KnownReadings::Counts readings() const { return rows_->counts(); }

 private:
  struct Target {
    std::string name;  // as records call it
    int vpp_stage = 0;
    ActivationChoice choice;
  };
  // What is known of a forward's inputs until it has run. Holds no tensor.
  struct Call {
    std::vector<ActivationRows::Row> rows;
    std::vector<GradientSource> sources;  // of each
    std::uint64_t first_node = 0;         // that the forward may make
  };

  ActivationRows::Row row(const Target& target, const ForwardVisit& visit, Side side,
                          const std::string& suffix) const;
  // Of those wanted. Warns where a selection does not fit, once.
  std::vector<const ForwardTensors::Element*> chosen(const Target& target, Side side,
                                                     const ForwardTensors& tensors);
  void read(const Target& target, const ForwardVisit& visit, Side side, const ForwardTensors& tensors);
  Call note_inputs(const Target& target, const ForwardVisit& visit, const ForwardTensors& inputs);
  void watch_inputs(Call call, const ForwardTensors& outputs);
  void watch_outputs(const Target& target, const ForwardVisit& visit, const ForwardTensors& outputs);
  TensorGradients::Body body(ActivationRows::Row row) const;
  const Target& tapped_target(int vpp_stage, std::string_view name);

  // Constant after construction.
  const ActivationSettings settings_;
  const TargetSelection selection_;
  RecordStream& stream_;
  std::vector<Target> targets_;  // by module

  // Own synchronisation.
  const std::shared_ptr<ActivationRows> rows_;  // hooks hold it weakly
  TensorGradients gradients_;
  CallsUnderWay<Call> calls_;

  std::mutex mutex_;
  // Guarded by mutex_.
  std::map<std::pair<int, std::string>, Target> tapped_;
  std::set<std::pair<std::string, Side>> warned_;
};

}  // namespace gradmon
