// SPDX-License-Identifier: Apache-2.0
// Where a program's forwards are told of: by gradmon::observe() and tap() in
// C++, by module hooks in Python. Any thread, re-entrant; nothing throws.
//
// What is told goes to every tap that is armed just now. While none is (no
// monitor, off, a step that is not collected) asking costs one relaxed load.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "control/vocabulary.h"

namespace gradmon {

// What goes into a module, or comes out: nested containers flattened. Valid
// during the call only; a listener keeps nothing alive.
struct ForwardTensors {
  struct Element {
    at::Tensor tensor;      // may be undefined
    std::string key;        // what its container calls it: "0", or a dict's key; "" if lone
    std::size_t place = 0;  // in the container
  };
  std::vector<Element> elements;  // tensors alone
  std::size_t places = 0;         // of the container: with what is no tensor
  bool lone = false;              // a tensor by itself, not in a container
};

enum class ModuleMode : bool { evaluation, training };

// One who wants to be told: a ForwardTap.
class ForwardObserver {
 public:
  virtual ~ForwardObserver() = default;
  virtual void entered(const void* module, ModuleMode mode, const ForwardTensors& inputs) noexcept = 0;
  virtual void left(const void* module, const ForwardTensors& outputs) noexcept = 0;
  virtual void abandoned(const void* module) noexcept = 0;
  virtual void tapped(std::string_view name, const at::Tensor& tensor) noexcept = 0;
  virtual void attended(const void* module, std::string_view name, const at::Tensor& q, const at::Tensor& k,
                        Causal causal) noexcept = 0;
};

namespace forward_entry {

extern std::atomic<int> observers;  // that are armed; changed by arm() and disarm() alone
inline bool open() noexcept { return observers.load(std::memory_order_relaxed) != 0; }

// Before a module's forward, and after it with what came out (or with nothing,
// where it threw), on the same thread. `module`: WatchedModule::identity;
// one that nobody watches is passed over.
void entered(const void* module, ModuleMode mode, const ForwardTensors& inputs) noexcept;
void left(const void* module, const ForwardTensors& outputs) noexcept;
void abandoned(const void* module) noexcept;
// A value by name, which no module gives.
void tapped(std::string_view name, const at::Tensor& tensor) noexcept;
// What an attention looks with and at: of a module, or (null) by name.
void attended(const void* module, std::string_view name, const at::Tensor& q, const at::Tensor& k,
              Causal causal) noexcept;

// A call that has begun may go on after disarm(): the observer is kept until it returns.
void arm(std::shared_ptr<ForwardObserver> observer);
void disarm(const ForwardObserver& observer) noexcept;

}  // namespace forward_entry
}  // namespace gradmon
