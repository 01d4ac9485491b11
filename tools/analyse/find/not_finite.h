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

// What a row says about elements that are not finite, by what METRICS.md says of each statistic. Pure.
//   nan       "nans" is above 0, or a norm or an extreme is NaN: a sum of squares and an extreme are
//             NaN through a NaN element only, whatever "nans" says. A mean may also be NaN through
//             infinities of both signs; it shows a NaN only if the row has no other statistic to tell.
//   infinite  an extreme is infinite; or norm or mean is not finite, and the row does not show that the
//             elements are (it has neither an extreme of magnitudes nor both min and max). Such a row may be
//             an overflow.
//   overflow  norm or mean is not finite, although all elements are.
// Left out: what is NaN by definition, which is "zeros", a minimum or maximum of complex numbers, and all
// statistics but "nans" of a boolean or an empty tensor.
NotFiniteField not_finite_in(const Row& row);

// "NaN", "an infinity" or "an overflow".
const char* text_of(NotFinite what);

}  // namespace gradmon
