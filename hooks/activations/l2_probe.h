// SPDX-License-Identifier: Apache-2.0
// The L2 features: attention_hook, linear_hook, moe_router_weight_hook,
// moe_router_logit_hook. No tensor is kept: only their numbers, until the step ends.
#pragma once

#include <array>
#include <cstddef>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hooks/observe/forward_listener.h"
#include "hooks/rows/hook_settings.h"
#include "hooks/rows/probe.h"
#include "hooks/names/target_match.h"
#include "hooks/names/watched_model.h"
#include "hooks/stats/weight_spectrum.h"

namespace gradmon {

// Rows, each kind in the order in which it was read:
//   {module}.attention  of each forward: inputs 0 and 1 are Q and K, but in micro
//                       steps in which gradmon::attention() names that module
//   {name}.attention    of each gradmon::attention() with that name (or of that module)
//   {module}.linear     of its parameter `weight`, else `wg`, once a step: as the
//                       first update finds it, trained or not
//   {module}.router     of that parameter, and of the module's first output
// The second and later call in one micro step is named NAME@2, … Recomputations
// are passed over: their numbers are the same. What does not apply is counted,
// with the reason.
class L2Probe : public Probe, public ForwardListener {
 public:
  // Targets that mean no module of the model, or none with such a weight, are
  // added to `unmatched`; a program's own attention names cannot be known here.
  L2Probe(const L2Settings& settings, const WatchedModel& model, Squash squash, RecordStream& stream,
          std::vector<UnmatchedPattern>& unmatched);

  void begin_step(Step step) override;
  void before_update(const Update& update) override;
  void write_rows(RowWriter& rows) override;
  std::size_t attached() const noexcept override;
  ForwardListener* forward_listener() noexcept override;

  // Any thread.
  void before_forward(const ForwardVisit& visit, const ForwardTensors& inputs) override;
  void after_forward(const ForwardVisit& visit, const ForwardTensors& outputs) override;
  void abandoned(const ForwardVisit& visit) override;
  void attended(const ForwardVisit& visit, std::string_view name, const at::Tensor& q, const at::Tensor& k,
                Causal causal) override;

 private:
  struct Module {
    std::string name;  // as records call it
    int vpp_stage = 0;
    Causal causal = Causal::yes;
    bool attention = false;
    bool router = false;  // its output
  };
  struct Weight {
    at::Tensor tensor;
    std::string name;  // of the module, as records call it
    int vpp_stage = 0;
    bool linear = false;
    bool router = false;
    WeightSpectrum spectrum;
  };
  // A row to be, or why there is none.
  struct Finding {
    Kind kind = Kind::attention_hook;
    std::string name;
    int vpp_stage = 0;
    int micro_step = 0;
    std::array<ColumnValue, 2> values = {};
    std::size_t count = 0;   // of values; 0: not applicable
    PendingNumbers pending;  // instead of the values
    std::string why;
    std::size_t of_inputs = kNoModule;  // the module whose inputs were taken for Q and K
  };

  void find_weights(const L2Settings& settings, const WatchedModel& model,
                    std::vector<UnmatchedPattern>& unmatched);
  void attention(Finding finding, const at::Tensor& q, const at::Tensor& k, Causal causal);
  void spectrum_of(Weight& weight);
  void keep(Finding finding);
  bool told_of(std::size_t module, int micro_step);

  // Constant after construction.
  RecordStream& stream_;
  const AxisOrder order_;
  const std::vector<std::string> attention_names_;
  std::vector<Module> modules_;  // as WatchedModel has them

  // The training thread's.
  std::vector<Weight> weights_;
  bool weights_read_ = false;

  std::mutex mutex_;
  // Guarded by mutex_.
  std::vector<Finding> findings_;
  std::set<std::pair<std::size_t, int>>
      reported_by_program_;  // modules that attention() named, by micro step
};

}  // namespace gradmon
