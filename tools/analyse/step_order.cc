// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/step_order.h"

#include <limits>
#include <tuple>

namespace gradmon {

Phase phase_of(Kind kind, const Row& row) {
  switch (kind) {
    case Kind::param_origin:
    case Kind::exp_avg:
    case Kind::exp_avg_sq:
      return Phase::state;
    case Kind::actv:
    case Kind::attention_hook:
    case Kind::linear_hook:
    case Kind::moe_router_weight_hook:
    case Kind::moe_router_logit_hook:
      return Phase::forward;
    case Kind::actv_grad:
    case Kind::grad_unreduced:
      return Phase::backward;
    case Kind::other:  // a collective call, or a gradient against its momentum
      return row.has(kMgDirectionField) ? Phase::update : Phase::reduction;
    case Kind::grad_reduced:
      return Phase::reduction;
    case Kind::param_updated:
    case Kind::update:
    case Kind::ratio:
      return Phase::update;
    case Kind::scalar:
      return Phase::scalars;
  }
  return Phase::scalars;
}

const char* text_of(Phase phase) {
  switch (phase) {
    case Phase::state:
      return "before the step";
    case Phase::forward:
      return "in the forward pass";
    case Phase::backward:
      return "in the backward pass";
    case Phase::reduction:
      return "after the backward pass";
    case Phase::update:
      return "in the optimizer's step";
    case Phase::scalars:
      return "among the scalars";
  }
  return "";
}

StepOrder order_of(int rank, Kind kind, const Row& row) {
  StepOrder order;
  order.step = row.step;
  order.phase = phase_of(kind, row);
  const bool in_a_pass = order.phase == Phase::forward || order.phase == Phase::backward;
  order.part = static_cast<std::uint8_t>(in_a_pass ? Phase::forward : order.phase);
  // A gradient without a micro step follows the last micro step; a feature of the weights counts as one of
  // the first.
  const bool after_all = order.phase == Phase::backward && row.micro_step < 0;
  order.micro_step = after_all            ? std::numeric_limits<std::int32_t>::max()
                     : row.micro_step < 0 ? 0
                                          : row.micro_step;
  order.file = kind == Kind::other ? 0 : static_cast<std::uint8_t>(static_cast<int>(kind) + 1);
  order.chunk = order.phase == Phase::backward ? -row.vpp_stage : row.vpp_stage;
  order.place = row.place;
  order.rank = rank;
  return order;
}

bool operator<(const StepOrder& a, const StepOrder& b) {
  const auto key = [](const StepOrder& order) {
    return std::tie(order.step, order.part, order.micro_step, order.phase, order.chunk, order.file,
                    order.place, order.rank);
  };
  return key(a) < key(b);
}

}  // namespace gradmon
