// SPDX-License-Identifier: Apache-2.0
// A value that the program hands in itself, instead of a hook that would find it.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "control/vocabulary.h"
#include "hooks/names/scope.h"

namespace gradmon {

struct TappedValue {
  Kind kind = Kind::actv;
  std::string name;  // in the rows, as it is
  at::Tensor tensor;
  int micro_step = 0;
  std::string why;       // why the value has no tensor; "": it has one
  ScopeText scope = {};  // what the program says it is of; null: that of the tensor, if it says so
};

// Whether a program may hand in values of this kind: those that are the statistics of one tensor.
constexpr bool can_be_tapped(Kind kind) { return kind <= Kind::param_updated; }

}  // namespace gradmon
