// SPDX-License-Identifier: Apache-2.0
// Rows of the values that the program passes: Monitor.tap() in Python.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <map>
#include <string>
#include <tl/expected.hpp>
#include <tuple>
#include <utility>
#include <vector>

#include "hooks/probes/foreign_array.h"
#include "hooks/rows/hook_settings.h"
#include "hooks/rows/probe.h"
#include "hooks/rows/reading.h"
#include "hooks/rows/target_match.h"
#include "hooks/rows/watched_model.h"

namespace gradmon {

// A tensor with the array's elements and sizes, or the reason why torch cannot have it. Torch has no negative
// strides: along such a dimension the elements are in reversed order, which does not change any statistic.
// The tensor is a view of the array's memory, and must not be used after that memory is freed; it is a copy
// if addresses or strides are not multiples of the element's size. The array has passed memory_of(), and its
// memory can be read. Throws what torch throws. Any thread.
tl::expected<at::Tensor, std::string> tensor_of(const ForeignArray& array);

// Training thread. The plan decides as for a model's own tensors: a value has no row if its kind is not
// collected or no target selects its name. The second value of a kind, name and micro step replaces the
// first. Only grad_unreduced with `monitor_mbs_grad`, actv and actv_grad have micro steps. The rows of a kind
// come after those of the model, in the order of tap(). Names with the step in them would be new in each
// step, so a value whose name comes after kMostNames others of the plan is not applicable.
class TapProbe : public Probe {
 public:
  static constexpr std::size_t kMostNames = std::size_t{1} << 16U;

  // `stream` and `fuse` must outlive this.
  TapProbe(const HookSettings& settings, RecordStream& stream, HookFuse& fuse);

  // Reads the value at once and keeps no tensor. Waits for a device: the memory is the program's.
  void tap(const TappedValue& value);

  void begin_step(Step step, Readers active) override;
  void write_rows(RowWriter& rows) override;

 private:
  using Key = std::tuple<Kind, std::string, int>;  // kind, name, micro step

  bool selects(const std::string& name);

  // Constant after construction.
  RecordStream& stream_;
  HookFuse& fuse_;
  const TargetSelection selection_;
  const bool micro_steps_of_gradients_;
  const bool flight_;                 // keeps rows of grad_reduced
  std::array<bool, kKinds> kinds_{};  // by Kind: true if the plan collects it

  ReadOptions options_;
  std::map<std::string, bool> selected_;  // by name, of this plan; at most kMostNames
  std::map<Key, std::size_t> places_;     // index in readings_
  std::vector<Key> keys_;                 // of readings_, in the order of tap()
  std::vector<Reading> readings_;
  std::vector<std::pair<Kind, std::string>> left_out_;  // in this step: values with a name too many
};

}  // namespace gradmon
