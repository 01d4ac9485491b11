// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "tools/analyse/rows/row.h"

namespace gradmon {

enum class NotFinite : std::uint8_t { none, infinite, nan };

struct NotFiniteField {
  NotFinite what = NotFinite::none;
  Field field = 0;  // the statistic that shows it
};

// Whether the tensor of the row has elements that are not finite. With a count of 0 in "nans" a NaN in
// another statistic comes from infinite elements. Left out: what is NaN by definition, which is "zeros", a
// minimum or maximum of complex numbers, and all statistics of a boolean or an empty tensor. Pure.
NotFiniteField not_finite_in(const Row& row);

// "NaN" or "an infinity".
const char* text_of(NotFinite what);

}  // namespace gradmon
