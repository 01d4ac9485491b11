// SPDX-License-Identifier: Apache-2.0
// Tensors that have no memory of their own and wrap others: DTensor, AsyncCollectiveTensor, wrappers of
// torchao and Transformer Engine.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>

#include "hooks/rows/watched_model.h"
#include "hooks/stats/scaled_values.h"

namespace gradmon {

// A torch operator on a wrapper may start a collective, and a rank that starts one alone hangs the job. So
// only the tensor inside is ever read.
struct Unwrapped {
  at::Tensor tensor;  // undefined if it is missing or cannot be read
  std::string why;    // why it cannot be read; "": it can
  ScopeText scope;    // the wrapper's scope; null: it has none
  // Not null: the wrapper holds numbers of low precision instead of a tensor.
  std::shared_ptr<ScaledValues> values = {};
  at::Tensor scale = {};  // as stored; undefined: none
  DType scale_dtype = DType::unknown;
};

// True if the tensor has a Python class that sees each operator (`__torch_dispatch__`).
bool is_wrapper(const at::Tensor& tensor);

// Returns the content of a wrapper, and any other tensor itself. Any thread. May take the GIL: all threads
// that lock a mutex of the hooks lock it without the GIL.
Unwrapped taken_apart(const at::Tensor& tensor);
// Same as taken_apart(), but only returns tensors: numbers of low precision cannot be read.
Unwrapped unwrapped(const at::Tensor& tensor);

// Sets the function that takes wrappers apart, which only the binding to Python knows. Null: they cannot be
// read. Call it before any hook is attached. `unwrap` returns nullopt for an unknown class.
using Unwrap = std::optional<Unwrapped> (*)(const at::Tensor& wrapper);
void set_unwrap(Unwrap unwrap) noexcept;

// The run of the flattened tensor as a 1-D view; undefined if the tensor has fewer elements or is not
// contiguous. `tensor` must not be a wrapper.
at::Tensor run_of(const at::Tensor& tensor, const ElementRun& run);

}  // namespace gradmon
