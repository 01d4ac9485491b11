// SPDX-License-Identifier: Apache-2.0
// gradmon.observe(): a tensor within a forward, in eager code and within a graph of torch.compile.
//
//   gradmon::tap(Tensor x, Tensor(a!) token, int number) -> ()
//
// is the operator in graphs. A compiler keeps the operator, because it declares a write to `token`, which it
// does not make. While no monitor collects, it costs one load. `number` is observation_number().
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace gradmon {

enum class GradientMode : bool { disabled, enabled };

// Identifies a name, and the gradient mode in which the forward was traced: compiled forwards themselves run
// without gradients. The same in every process. Any thread.
std::int64_t observation_number(const std::string& name, GradientMode gradients);

// In eager code. Any thread, with the GIL.
void observe_now(const at::Tensor& x, const std::string& name);

}  // namespace gradmon
