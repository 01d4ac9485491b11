// SPDX-License-Identifier: Apache-2.0
// One call of torch's communication library (c10d), or of torch's symmetric memory (torch.ops.symm_mem), as
// torch's dispatcher sees it.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace c10d {
class Work;
}

namespace gradmon {

struct CollectiveCall {
  std::string op;     // torch.distributed's name: "all_reduce"; isend and irecv are "send" and "recv"
  std::string group;  // the backend, "gloo", and the group's name if it has one
  int group_size = 0;
  int group_rank = -1;
  // Lists are flattened. A tensor that is changed in place is in both lists. `reduce` has outputs on its
  // root only. A barrier has no tensors.
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> outputs;
  // The caller requests no work: later work on the current stream finds the outputs written (torch >= 2.8).
  bool synchronous = false;
  // begin_coalescing()'s number, if the call is sent later together with others: it ends with them, even if
  // its work ends earlier. 0: it is sent at once.
  std::uint64_t coalesced = 0;
  const void* group_id = nullptr;  // the group's address
  bool functional = false;         // a functional operator makes it
  bool returns_output = false;     // the operator's first result is an output
};

// Returns true if an operator's name, such as "c10d::allreduce_", belongs to c10d.
bool is_collective(const char* name) noexcept;

// Return true for torch's functional operators that make such calls, and for those that wait for such a call
// and return its output.
bool is_functional(const char* name) noexcept;
bool is_functional_wait(const char* name) noexcept;

// Finds the arguments by their types, because torch 1.13 gives them no names and 2.x has more of them. If two
// arguments hold tensors, the outputs come first in both versions.
CollectiveCall collective_call(const char* name, c10::ArrayRef<const c10::IValue> arguments);

// True for an operator of torch's symmetric memory: "symm_mem::one_shot_all_reduce". It communicates
// without c10d.
bool is_symmetric_memory(const char* name) noexcept;

// The call of such an operator; its outputs are complete on the current stream when it returns. Without
// tensors: another call of the operator follows, or none is made. nullopt: its tensors cannot be read, or do
// not exist (see why_unread()).
std::optional<CollectiveCall> symmetric_memory_call(const char* name,
                                                    c10::ArrayRef<const c10::IValue> arguments);
// The reason why such an operator has no rows, as a sentence with its name; "" if it passes no values of
// tensors (a barrier, a signal).
std::string why_unread(const char* name);

// The Work among the results of the call; null without one.
c10::intrusive_ptr<c10d::Work> work_of(const std::vector<c10::IValue>& results);

}  // namespace gradmon
