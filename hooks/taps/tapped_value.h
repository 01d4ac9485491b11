// SPDX-License-Identifier: Apache-2.0
// A value that the program passes itself, without a hook.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "control/vocabulary.h"
#include "hooks/names/scope.h"

namespace gradmon {

struct TappedValue {
  Kind kind = Kind::actv;
  std::string name;  // in the rows, unchanged
  at::Tensor tensor;
  int micro_step = 0;
  std::string why;       // the reason why the value has no tensor; "": it has one
  ScopeText scope = {};  // the program's scope for it; null: the tensor's scope, if it has one
};

// True if a program may pass values of this kind: the kinds with the statistics of one tensor.
constexpr bool can_be_tapped(Kind kind) { return kind <= Kind::param_updated; }

}  // namespace gradmon
