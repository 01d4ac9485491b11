// SPDX-License-Identifier: Apache-2.0
// The program reports its forwards here: in C++ by gradmon::observe() and tap(), in Python by module
// hooks. Any thread, re-entrant; nothing throws.
//
// Each report goes to every armed observer. While none is armed (no monitor, off, or a step that is not
// collected), open() costs one relaxed load.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "gradmon/types.h"

namespace gradmon {

// The inputs or outputs of a module, with nested containers flattened. Valid during the call only; a
// listener must not keep a tensor alive.
struct ForwardTensors {
  struct Element {
    at::Tensor tensor;      // may be undefined
    std::string key;        // its name in the container: "0", or the key of a dict; "" if lone
    std::size_t place = 0;  // index in the flattened container
  };
  std::vector<Element> elements;  // tensors only
  std::size_t places = 0;         // elements of the flattened container, including other types
  bool lone = false;              // one tensor that is not in a container
};

enum class ModuleMode : bool { evaluation, training };

namespace forward_entry {

extern std::atomic<int> observers;  // number of armed observers; gradmon changes it
inline bool open() noexcept { return observers.load(std::memory_order_relaxed) != 0; }

// entered(): before the forward of a module. left(): after it. abandoned(): instead of left() if it threw.
// All on the same thread. `module` identifies the module, by its address in C++; unwatched modules are
// ignored.
void entered(const void* module, ModuleMode mode, const ForwardTensors& inputs) noexcept;
void left(const void* module, const ForwardTensors& outputs) noexcept;
void abandoned(const void* module) noexcept;
// A named value that is not the output of a module.
void tapped(std::string_view name, const at::Tensor& tensor) noexcept;
// The queries and keys of an attention: of `module`, or of `name` if `module` is null.
void attended(const void* module, std::string_view name, const at::Tensor& q, const at::Tensor& k,
              Causal causal) noexcept;
}  // namespace forward_entry
}  // namespace gradmon
