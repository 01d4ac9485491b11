// SPDX-License-Identifier: Apache-2.0
// print_struct and stack_info: the tensors that each module takes and returns, and its call stack, in the
// first collected step.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "hooks/observe/call_site.h"
#include "hooks/observe/forward_listener.h"
#include "hooks/observe/forward_tracker.h"
#include "hooks/observe/tensor_gradient.h"
#include "hooks/rows/hook_settings.h"
#include "hooks/rows/probe.h"
#include "hooks/rows/record_stream.h"
#include "hooks/rows/watched_model.h"

namespace gradmon {

// Publishes two documents, once, after the first collected step of the plan:
//
// module_struct (JSON, by msprobe's rules): every module by its name in the rows, in the model's order; an
// empty object if it did not run. `input` is a tuple of the arguments. `input_grad` and `output_grad` are
// present if a gradient of the module's output has arrived, with `<class 'NoneType'>` for each tensor
// without a gradient.
//
// stack_info (CSV): every module that the targets select and that ran, in the order of the first runs,
// with its stack as `File PATH, line N, in FUNC, \n CODE \n` for each frame. If `stack` is null or returns
// no frames, the frames are the watched modules around the module, at `@native`, line 0.
class ModuleStructure : public Probe, public ForwardListener {
 public:
  // `stream` and `fuse` must outlive this.
  ModuleStructure(const HookSettings& settings, const WatchedModel& model, RecordStream& stream,
                  HookFuse& fuse, StackSource stack = {});
  ~ModuleStructure() override;

  void begin_step(Step step, Readers active) override;
  void disarm() noexcept override;
  void write_rows(RowWriter& rows) override;
  ForwardListener* forward_listener() noexcept override { return this; }

  void before_forward(const ForwardVisit& visit, const ForwardTensors& inputs) override;
  void after_forward(const ForwardVisit& visit, const ForwardTensors& outputs) override;

 private:
  class Seen;
  struct Input {
    std::string key;
    GradientSource source;
  };

  std::vector<StackFrame> stack_here() const;

  // Constant after construction.
  const HookSettings settings_;
  RecordStream& stream_;
  const StackSource stack_;
  const ModuleIndices indices_;
  std::vector<std::string> names_;       // by module: "0:fc1"
  std::vector<std::string> full_names_;  // by module: the model's name
  std::vector<bool> selected_;           // by module

  // Written by the training thread, at step boundaries only.
  bool done_ = false;

  // Own synchronisation.
  const std::shared_ptr<Seen> seen_;  // hooks hold it weakly
  TensorGradients gradients_;
  OngoingForwards<std::vector<Input>> calls_;
};

}  // namespace gradmon
