// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/find/not_finite.h"

#include <cmath>
#include <string_view>

namespace gradmon {
namespace {

// "[0]", "[4, 0]"
bool is_empty_tensor(std::string_view shape) {
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const bool begins = i > 0 && (shape[i - 1] == '[' || shape[i - 1] == ' ');
    const bool ends = i + 1 < shape.size() && (shape[i + 1] == ']' || shape[i + 1] == ',');
    if (shape[i] == '0' && begins && ends) return true;
  }
  return false;
}

bool is_undefined(const Row& row, Field field) {
  const bool extreme = field == field_of(Op::min) || field == field_of(Op::max);
  return field == field_of(Op::zeros) || (extreme && row.dtype.substr(0, 13) == "torch.complex");
}

}  // namespace

NotFiniteField not_finite_in(const Row& row) {
  constexpr Field kNans = field_of(Op::nans);
  const bool counted = row.has(kNans);
  if (counted && row.values[kNans] > 0) return {NotFinite::nan, kNans};
  NotFiniteField found;
  for (Field field = 0; field < kFields; ++field) {
    if (!row.has(field) || std::isfinite(row.values[field]) || is_undefined(row, field)) continue;
    if (std::isnan(row.values[field]) && !counted) {
      found = {NotFinite::nan, field};
      break;
    }
    if (found.what == NotFinite::none) found = {NotFinite::infinite, field};
  }
  if (found.what != NotFinite::none && (row.dtype == "torch.bool" || is_empty_tensor(row.shape))) return {};
  return found;
}

const char* text_of(NotFinite what) {
  return what == NotFinite::nan ? "NaN" : what == NotFinite::infinite ? "an infinity" : "";
}

}  // namespace gradmon
