// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "tools/analyse/rows/row.h"

namespace gradmon {

// `overflow`: the elements are finite; only their sum (mean) or the sum of their squares (norm) is not.
enum class NotFinite : std::uint8_t { none, overflow, infinite, nan };

struct NotFiniteField {
  NotFinite what = NotFinite::none;
  Field field = 0;  // the statistic that shows it
};

// A row's evidence of elements that are not finite, by METRICS.md's definition of each statistic. Pure.
//   nan       "nans" is above 0, or a norm or an extreme is NaN: only a NaN element makes a sum of squares
//             or an extreme NaN, regardless of "nans". Infinities of both signs also make a mean NaN, so a
//             NaN mean shows a NaN element only if the row has none of the other statistics.
//   infinite  an extreme is infinite; or norm or mean is not finite, and the row does not show that the
//             elements are (it has neither an extreme of magnitudes nor both min and max). Such a row may be
//             an overflow.
//   overflow  norm or mean is not finite, although all elements are.
// Ignores values that are NaN by definition: "zeros", a minimum or maximum of complex numbers, and all
// statistics except "nans" of a boolean or an empty tensor.
NotFiniteField not_finite_in(const Row& row);

// "NaN", "an infinity" or "an overflow".
const char* text_of(NotFinite what);

}  // namespace gradmon
