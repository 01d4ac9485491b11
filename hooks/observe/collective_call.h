// SPDX-License-Identifier: Apache-2.0
// One call of torch's communication library (c10d), as its dispatcher sees it.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

namespace c10d {
class Work;
}

namespace gradmon {

struct CollectiveCall {
  std::string op;     // as torch.distributed calls it: "all_reduce"; send and recv alike for isend, irecv
  std::string group;  // "gloo", with its name where it has one; size and rank as it says
  int group_size = 0;
  int group_rank = -1;
  // Lists are flattened. A tensor worked upon in place is in both; `reduce` has
  // outputs on its root alone, barrier has no tensors.
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> outputs;
};

// Whether an operator's name ("c10d::allreduce_") is that of such a call.
bool is_collective(const char* name) noexcept;

// Arguments are found by their types: 1.13 gives them no names, 2.x has more of
// them; of two with tensors the outputs come first in both.
CollectiveCall collective_call(const char* name, c10::ArrayRef<const c10::IValue> arguments);

// What the call returned; null where it returned none.
c10::intrusive_ptr<c10d::Work> work_of(const std::vector<c10::IValue>& results);

}  // namespace gradmon
