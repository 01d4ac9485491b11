// SPDX-License-Identifier: Apache-2.0
#include "runtime/monitor_binding.h"

#include <exception>
#include <string>
#include <utility>

#include "control/log.h"
#include "runtime/session.h"

namespace gradmon {

void MonitorBinding::set_interrupt_check(std::function<bool()> interrupted) noexcept {
  if (monitor_.session_) monitor_.session_->set_interrupt_check(std::move(interrupted));
}

void MonitorBinding::set_stack_source(StackSource stack) noexcept {
  if (monitor_.session_) monitor_.session_->set_stack_source(std::move(stack));
}

int MonitorBinding::rank() const noexcept { return monitor_.session_ ? monitor_.session_->rank() : 0; }

void MonitorBinding::watch(WatchedModel chunk) noexcept {
  try {
    if (monitor_.session_) monitor_.session_->watch(std::move(chunk));
  } catch (const std::exception& error) {
    log_error(std::string("cannot watch the model: ") + error.what());
  }
}

void MonitorBinding::watch_again(int chunk, WatchedModel model) noexcept {
  try {
    if (monitor_.session_) monitor_.session_->watch_again(chunk, std::move(model));
  } catch (const std::exception& error) {
    log_error(std::string("cannot watch the changed model: ") + error.what());
  }
}

void MonitorBinding::gradient_scale(double scale, std::optional<int> chunk) noexcept {
  if (monitor_.session_) monitor_.session_->gradient_scale(scale, chunk);
}

void MonitorBinding::note_skipped_update() noexcept {
  if (monitor_.session_) monitor_.session_->note_skipped_update();
}

void MonitorBinding::note_warnings(std::vector<std::string> warnings) noexcept {
  if (monitor_.session_) monitor_.session_->note_warnings(std::move(warnings));
}

void MonitorBinding::note_attached(std::vector<std::string> lines) noexcept {
  if (monitor_.session_) monitor_.session_->note_attached(std::move(lines));
}

bool MonitorBinding::takes_scalars() const noexcept {
  return monitor_.session_ && monitor_.session_->takes_scalars();
}

bool MonitorBinding::collecting() const noexcept {
  return monitor_.session_ && monitor_.session_->collecting();
}

Collection* MonitorBinding::collection() const noexcept {
  return monitor_.session_ ? monitor_.session_->collection() : nullptr;
}

void MonitorBinding::gathered(const void* unit) noexcept {
  if (Collection* const reads = collection()) reads->gathered(unit);
}

void MonitorBinding::before_update(const std::vector<at::Tensor>& parameters,
                                   const OptimizerState& state) noexcept {
  if (Collection* const reads = collection(); reads && !parameters.empty())
    reads->before_update(parameters, &state);
}

void MonitorBinding::after_update(const std::vector<at::Tensor>& parameters) noexcept {
  if (Collection* const reads = collection(); reads && !parameters.empty())
    reads->after_update(parameters, nullptr);
}

void MonitorBinding::after_update(const std::vector<at::Tensor>& parameters,
                                  const OptimizerState& state) noexcept {
  if (Collection* const reads = collection(); reads && !parameters.empty())
    reads->after_update(parameters, &state);
}

void MonitorBinding::deliver_gradient(const at::Tensor& parameter, const at::Tensor& gradient) noexcept {
  if (Collection* const reads = collection()) reads->deliver_gradient(parameter, gradient);
}

void MonitorBinding::tap(const TappedValue& value, std::chrono::steady_clock::time_point begun) noexcept {
  if (Collection* const reads = collection()) reads->tap(value, begun);
}

}  // namespace gradmon
