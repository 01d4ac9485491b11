// SPDX-License-Identifier: Apache-2.0
#include "runtime/python/coalescing.h"

#include <cstdint>

#include "hooks/collectives/collective_observer.h"

namespace gradmon {

void define_coalescing(pybind11::module_& m) {
  m.def("collectives_are_observed", &collectives_are_observed);
  m.def("begin_coalescing", &begin_coalescing);
  m.def("end_coalescing", &end_coalescing);
  m.def(
      "coalesced_calls_are_over",
      [](std::uint64_t number, bool waited_for) {
        coalesced_calls_are_over(number, waited_for ? CoalescedWork::waited_for : CoalescedWork::none);
      },
      pybind11::call_guard<pybind11::gil_scoped_release>());
}

}  // namespace gradmon
