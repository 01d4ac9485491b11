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

constexpr Field kMean = field_of(Op::mean);
constexpr Field kNorm = field_of(Op::norm);
constexpr Field kMin = field_of(Op::min);
constexpr Field kMax = field_of(Op::max);
constexpr Field kAbsmax = field_of(Op::absmax);
constexpr Field kNans = field_of(Op::nans);

bool is_defined(const Row& row, Field field) {
  const bool extreme = field == kMin || field == kMax;
  return row.has(field) && !(extreme && row.dtype.substr(0, 13) == "torch.complex");
}

// Whether the row rules out that an element is NaN, given that no statistic that propagates one is NaN.
bool excludes_nan(const Row& row) {
  return row.has(kNans) || row.has(kNorm) || is_defined(row, kMin) || is_defined(row, kMax) ||
         row.has(kAbsmax);
}

bool is_finite(const Row& row, Field field) {
  return is_defined(row, field) && std::isfinite(row.values[field]);
}

// A NaN of these four can only come from a NaN element.
NotFiniteField found_in_elements(const Row& row) {
  for (const Field field : {kNorm, kMin, kMax, kAbsmax}) {
    if (is_defined(row, field) && std::isnan(row.values[field])) return {NotFinite::nan, field};
  }
  for (const Field field : {kMin, kMax, kAbsmax}) {
    if (is_defined(row, field) && std::isinf(row.values[field])) return {NotFinite::infinite, field};
  }
  return {};
}

NotFiniteField found_in_sums(const Row& row) {
  const bool elements_finite = is_finite(row, kAbsmax) || (is_finite(row, kMin) && is_finite(row, kMax));
  for (const Field field : {kNorm, kMean}) {
    if (!row.has(field) || std::isfinite(row.values[field])) continue;
    if (std::isnan(row.values[field]) && !excludes_nan(row)) return {NotFinite::nan, field};
    return {elements_finite ? NotFinite::overflow : NotFinite::infinite, field};
  }
  return {};
}

// Of what is not a statistic of a tensor's elements: entropy, a training scalar …
NotFiniteField found_in_features(const Row& row) {
  for (Field field = kOps; field < kFields; ++field) {
    if (!row.has(field) || std::isfinite(row.values[field])) continue;
    return {std::isnan(row.values[field]) ? NotFinite::nan : NotFinite::infinite, field};
  }
  return {};
}

}  // namespace

NotFiniteField not_finite_in(const Row& row) {
  if (row.has(kNans) && row.values[kNans] > 0) return {NotFinite::nan, kNans};
  if (row.dtype == "torch.bool" || is_empty_tensor(row.shape)) return {};
  for (auto* const found_in : {found_in_elements, found_in_sums, found_in_features}) {
    if (const NotFiniteField found = found_in(row); found.what != NotFinite::none) return found;
  }
  return {};
}

const char* text_of(NotFinite what) {
  switch (what) {
    case NotFinite::nan:
      return "NaN";
    case NotFinite::infinite:
      return "an infinity";
    case NotFinite::overflow:
      return "an overflow";
    case NotFinite::none:
      break;
  }
  return "";
}

}  // namespace gradmon
