// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/not_finite.h"

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
constexpr Field kNans = field_of(Op::nans);

bool is_signed_extreme(Field field) { return field == kMin || field == kMax; }

// min, max, and those of magnitudes.
bool is_extreme(Field field) {
  const Fold fold = kStatistics[field].fold;
  return fold == Fold::least || fold == Fold::greatest;
}

bool is_defined(const Row& row, Field field) {
  return row.has(field) && !(is_signed_extreme(field) && row.dtype.substr(0, 13) == "torch.complex");
}

// The first extreme of the row whose value fulfils `holds`; kOps if none does.
template <typename Holds>
Field extreme_that(const Row& row, Holds holds) {
  for (Field field = 0; field < kOps; ++field) {
    if (is_extreme(field) && is_defined(row, field) && holds(field)) return field;
  }
  return kOps;
}

// True if the row rules out a NaN element, given that no statistic that propagates NaN is NaN.
bool excludes_nan(const Row& row) {
  return row.has(kNans) || row.has(kNorm) || extreme_that(row, [](Field) { return true; }) != kOps;
}

bool is_finite(const Row& row, Field field) {
  return is_defined(row, field) && std::isfinite(row.values[field]);
}

// True if the row shows that all elements are finite.
bool has_finite_extremes(const Row& row) {
  if (is_finite(row, kMin) && is_finite(row, kMax)) return true;
  return extreme_that(row, [&](Field f) { return !is_signed_extreme(f) && std::isfinite(row.values[f]); }) !=
         kOps;
}

// Only a NaN element makes a norm or an extreme NaN.
NotFiniteField found_in_elements(const Row& row) {
  if (row.has(kNorm) && std::isnan(row.values[kNorm])) return {NotFinite::nan, kNorm};
  const Field nan = extreme_that(row, [&](Field f) { return std::isnan(row.values[f]); });
  if (nan != kOps) return {NotFinite::nan, nan};
  const Field infinite = extreme_that(row, [&](Field f) { return std::isinf(row.values[f]); });
  if (infinite != kOps) return {NotFinite::infinite, infinite};
  return {};
}

NotFiniteField found_in_sums(const Row& row) {
  for (const Field field : {kNorm, kMean}) {
    if (!row.has(field) || std::isfinite(row.values[field])) continue;
    if (std::isnan(row.values[field]) && !excludes_nan(row)) return {NotFinite::nan, field};
    return {has_finite_extremes(row) ? NotFinite::overflow : NotFinite::infinite, field};
  }
  return {};
}

// Checks values other than statistics of a tensor's elements: entropy, a training scalar …
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
