// SPDX-License-Identifier: Apache-2.0
#include "runtime/python/coalescing.h"

#include <cstdint>

#include "hooks/collectives/collective_observer.h"

namespace gradmon {
namespace {

template <CoalescedWork work>
void over(std::uint64_t number) noexcept {
  coalesced_calls_are_over(number, work);
}

}  // namespace

void define_coalescing(pybind11::module_& m) {
  m.def("collectives_are_observed", &collectives_are_observed);
  m.def("begin_coalescing", &begin_coalescing);
  m.def("end_coalescing", &end_coalescing);
  const pybind11::call_guard<pybind11::gil_scoped_release> others_run;
  m.def("coalesced_calls_are_over", &over<CoalescedWork::none>, others_run);
  m.def("coalesced_calls_are_waited_for", &over<CoalescedWork::waited_for>, others_run);
  m.def("coalesced_calls_are_dropped", &over<CoalescedWork::dropped>, others_run);
}

}  // namespace gradmon
