// SPDX-License-Identifier: Apache-2.0
// Observers of the reports of forwards: <gradmon/forward_entry.h>.
#pragma once

#include <memory>
#include <string_view>

#include "gradmon/forward_entry.h"

namespace gradmon {

// Receives the reports while armed. Implemented by ForwardTracker.
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

// A call that is in progress may outlast disarm(); it keeps the observer alive until it returns.
void arm(std::shared_ptr<ForwardObserver> observer);
void disarm(const ForwardObserver& observer) noexcept;

}  // namespace forward_entry
}  // namespace gradmon
