// SPDX-License-Identifier: Apache-2.0
#include "runtime/python/communication.h"

#include <torch/csrc/jit/python/pybind_utils.h>

#include <cstdint>

#include "hooks/collectives/collective_observer.h"

namespace gradmon {
namespace {

template <CoalescedWork work>
void over(std::uint64_t number) noexcept {
  coalesced_calls_are_over(number, work);
}

template <void (*tell)(const c10::ivalue::Future&) noexcept>
void tell_of(const pybind11::handle& future) {
  // torch's own pybind11 has made it, and ours does not know those types.
  const c10::IValue value = torch::jit::toIValue(future, c10::FutureType::create(c10::AnyType::get()));
  const pybind11::gil_scoped_release others_run;
  if (const auto known = value.toFuture()) tell(*known);
}

}  // namespace

void define_communication(pybind11::module_& m) {
  m.def("collectives_are_observed", &collectives_are_observed);
  m.def("begin_coalescing", &begin_coalescing);
  m.def("end_coalescing", &end_coalescing);
  m.def("calls_are_unwaited", &calls_are_unwaited);
  const pybind11::call_guard<pybind11::gil_scoped_release> others_run;
  m.def("coalesced_calls_are_over", &over<CoalescedWork::none>, others_run);
  m.def("coalesced_calls_are_waited_for", &over<CoalescedWork::waited_for>, others_run);
  m.def("call_is_waited_for", &tell_of<call_is_waited_for>);
  m.def("future_is_taken", &tell_of<future_is_taken>);
  m.def("coalesced_calls_are_dropped", &over<CoalescedWork::dropped>, others_run);
  m.def("communication_is_unread", &communication_is_unread, others_run);
}

}  // namespace gradmon
