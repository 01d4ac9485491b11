// SPDX-License-Identifier: Apache-2.0
// print_struct and stack_info: what each module takes and gives, and where it is
// called from, as seen in the first step that is collected.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "hooks/observe/call_site.h"
#include "hooks/observe/calls_under_way.h"
#include "hooks/observe/forward_listener.h"
#include "hooks/rows/hook_settings.h"
#include "hooks/rows/probe.h"
#include "hooks/rows/record_stream.h"
#include "hooks/observe/tensor_gradient.h"
#include "hooks/names/watched_model.h"

namespace gradmon {

// Publishes, after the first collected step of the plan and never again:
//
// module_struct (JSON, by msprobe's rules): every module by its record's name, in
// the model's order, those that did not run empty. `input` is a tuple of the
// arguments; `input_grad` and `output_grad` are there if a gradient of the
// module's output came, and say `<class 'NoneType'>` where none did.
//
// stack_info (CSV): every module that targets select and that ran, in the order
// in which they ran, with its stack as `File PATH, line N, in FUNC, \n CODE \n` for
// each frame. Where the source has none the frames are the watched modules around it, at
// `@native`, line 0.
class ModuleStructure : public Probe, public ForwardListener {
 public:
  // The stream and `fuse` outlive it.
  ModuleStructure(const HookSettings& settings, const WatchedModel& model, RecordStream& stream,
                  HookFuse& fuse, StackSource stack = {});
  ~ModuleStructure() override;

  void begin_step(Step step) override;
  void disarm() noexcept override;
  void write_rows(RowWriter& rows) override;
  ForwardListener* forward_listener() noexcept override { return this; }

  void before_forward(const ForwardVisit& visit, const ForwardTensors& inputs) override;
  void after_forward(const ForwardVisit& visit, const ForwardTensors& outputs) override;

  // Training thread: module_struct has been handed over.
  bool structure_written() const noexcept { return settings_.module_structure && done_; }

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
  std::vector<std::string> names_;       // by module: "0:fc1"
  std::vector<std::string> full_names_;  // by module, as the model has it
  std::vector<bool> selected_;           // by module

  // The training thread's.
  bool done_ = false;

  // Own synchronisation.
  const std::shared_ptr<Seen> seen_;  // hooks hold it weakly
  TensorGradients gradients_;
  CallsUnderWay<std::vector<Input>> calls_;
};

}  // namespace gradmon
