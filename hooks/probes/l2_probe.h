// SPDX-License-Identifier: Apache-2.0
// The L2 features: attention_hook, linear_hook, moe_router_weight_hook, moe_router_logit_hook. Keeps only
// numbers of activations, until the step ends.
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
#include "hooks/rows/row_writer.h"
#include "hooks/rows/target_match.h"
#include "hooks/rows/watched_model.h"
#include "hooks/stats/l2_features.h"

namespace gradmon {

// Rows, each kind in the order of reading:
//   {module}.attention  each forward, with inputs 0 and 1 as Q and K; not in micro
//                       steps in which gradmon::attention() reports this module
//   {name}.attention    each gradmon::attention() with this name (or for this module)
//   {module}.linear     the module's 2-D parameter `weight`, else `wg`, once a step
//                       before the first update, frozen or not
//   {module}.router     the same parameter, and the module's first output
// The second and later calls in one micro step are named NAME@2, … Recomputations are skipped, because their
// numbers are the same. A value that cannot be computed is counted as not applicable, with the reason.
class L2Probe : public Probe, public ForwardListener {
 public:
  // Adds targets that match no module, or no module with such a weight, to `unmatched`. The names that the
  // program passes to attention() are not known here, so they are added, too. `stream` must outlive this.
  // Call it only if `settings.l2` is set.
  L2Probe(const HookSettings& settings, const WatchedModel& model, RecordStream& stream,
          std::vector<UnmatchedPattern>& unmatched);

  void begin_step(Step step, Readers active) override;
  void before_update(const Update& update) override;
  void write_rows(RowWriter& rows) override;
  ForwardListener* forward_listener() noexcept override { return this; }

  // Any thread.
  void before_forward(const ForwardVisit& visit, const ForwardTensors& inputs) override;
  void after_forward(const ForwardVisit& visit, const ForwardTensors& outputs) override;
  void abandoned(const ForwardVisit& visit) override;
  void attended(const ForwardVisit& visit, std::string_view name, const at::Tensor& q, const at::Tensor& k,
                Causal causal) override;

 private:
  struct Module {
    std::string name;  // in the rows
    int vpp_stage = 0;
    Causal causal = Causal::yes;
    bool attention = false;
    bool router = false;  // read its output
  };
  struct Weight {
    HeldTensor tensor;
    std::string name;  // of the module, in the rows
    int vpp_stage = 0;
    bool linear = false;
    bool router = false;
    WeightSpectrum spectrum;
  };
  // The values of a row, or the reason why there are none.
  struct Finding {
    Kind kind = Kind::attention_hook;
    std::string name;
    int vpp_stage = 0;
    int micro_step = 0;
    std::int64_t read_at = 0;
    std::array<ColumnValue, 2> values = {};
    std::size_t count = 0;   // number of values; 0: not applicable
    PendingScalars pending;  // if pending, replaces the values
    std::string why;
    std::size_t of_inputs = kNoModule;  // the module whose inputs were read as Q and K

    void set(const RouterFeature& feature, Column column);
  };

  void find_weights(const HookSettings& plan, const WatchedModel& model,
                    std::vector<UnmatchedPattern>& unmatched);
  void attention(Finding finding, const at::Tensor& q, const at::Tensor& k, Causal causal);
  void read_weight(Weight& weight);
  // Fills the finding by read(), and keeps it. If torch throws, the finding is not applicable. Does nothing
  // if the step is full.
  template <typename Read>
  void keep(Finding finding, Read&& read);
  // Returns true if the program has passed this module's Q and K to attention() in this micro step.
  bool is_reported(std::size_t module, int micro_step);

  // Constant after construction.
  RecordStream& stream_;
  const AxisOrder order_;
  const std::vector<std::string> attention_names_;
  std::vector<Module> modules_;  // by index in WatchedModel::modules

  // Training thread only.
  std::vector<Weight> weights_;
  bool weights_read_ = false;

  StepLimit limit_;  // own synchronisation

  std::mutex mutex_;
  // Guarded by mutex_.
  std::vector<Finding> findings_;
  // (module, micro step) of each attention() call for a module
  std::set<std::pair<std::size_t, int>> reported_by_program_;
};

}  // namespace gradmon
