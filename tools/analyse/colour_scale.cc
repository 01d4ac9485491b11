// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/colour_scale.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

namespace gradmon {
namespace {

constexpr double kLinearUpTo = 100;  // largest by smallest magnitude

// Points of the colour map "viridis" (CC0), evenly spaced.
constexpr std::array<Colour, 9> kViridis = {{{68, 1, 84},
                                             {71, 44, 122},
                                             {59, 81, 139},
                                             {44, 113, 142},
                                             {33, 144, 141},
                                             {39, 173, 129},
                                             {92, 200, 99},
                                             {170, 220, 50},
                                             {253, 231, 37}}};
constexpr Colour kInfiniteColour = {255, 127, 14};
constexpr Colour kNanColour = {214, 39, 40};
constexpr Colour kZeroColour = {200, 200, 200};
constexpr Colour kMissingColour = {255, 255, 255};

std::uint8_t between(std::uint8_t a, std::uint8_t b, double part) {
  return static_cast<std::uint8_t>(std::lround(a + part * (b - a)));
}

}  // namespace

std::string hex_of(Colour colour) {
  char text[8];
  std::snprintf(text, sizeof text, "#%02x%02x%02x", colour.red, colour.green, colour.blue);
  return text;
}

ColourScale::ColourScale(const HeatMap& map) {
  double least = std::numeric_limits<double>::infinity();
  double least_positive = least;
  double most = 0;
  for (const float cell : map.cells) {
    if (!std::isfinite(cell) || cell == HeatMap::kMissing) continue;
    least = std::min(least, double{cell});
    if (cell > 0) least_positive = std::min(least_positive, double{cell});
    most = std::max(most, double{cell});
  }
  if (!std::isfinite(least)) return;
  logarithmic_ = most > kLinearUpTo * least_positive;
  least_ = logarithmic_ ? least_positive : least;
  most_ = most;
}

std::size_t ColourScale::class_of(float cell) const {
  if (std::isnan(cell)) return kNan;
  if (std::isinf(cell)) return kInfinite;
  if (cell == HeatMap::kMissing) return kMissing;
  if (cell == 0) return kZero;
  if (cell <= least_ || most_ <= least_) return 0;
  const double place =
      logarithmic_ ? std::log(cell / least_) / std::log(most_ / least_) : (cell - least_) / (most_ - least_);
  return std::min(kShades - 1, static_cast<std::size_t>(place * kShades));
}

double ColourScale::magnitude_at(double place) const {
  return logarithmic_ ? least_ * std::pow(most_ / least_, place) : least_ + place * (most_ - least_);
}

Colour ColourScale::colour_of(std::size_t cell_class) {
  if (cell_class == kNan) return kNanColour;
  if (cell_class == kInfinite) return kInfiniteColour;
  if (cell_class == kZero) return kZeroColour;
  if (cell_class >= kMissing) return kMissingColour;
  const double place = static_cast<double>(cell_class) / (kShades - 1) * (kViridis.size() - 1);
  const std::size_t first = std::min(kViridis.size() - 2, static_cast<std::size_t>(place));
  const double part = place - static_cast<double>(first);
  const Colour& a = kViridis[first];
  const Colour& b = kViridis[first + 1];
  return {between(a.red, b.red, part), between(a.green, b.green, part), between(a.blue, b.blue, part)};
}

}  // namespace gradmon
