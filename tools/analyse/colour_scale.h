// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "tools/analyse/heat_map.h"

namespace gradmon {

struct Colour {
  std::uint8_t red = 0;
  std::uint8_t green = 0;
  std::uint8_t blue = 0;
};
// "#1f9e89"
std::string hex_of(Colour colour);

// Maps magnitudes to colours. Logarithmic if the largest magnitude is more than 100 times the smallest one
// above 0. A value.
class ColourScale {
 public:
  static constexpr std::size_t kShades = 64;
  // The classes of cells with their own colour; below them, the shades, beginning with the smallest.
  static constexpr std::size_t kInfinite = kShades;
  static constexpr std::size_t kNan = kShades + 1;
  static constexpr std::size_t kZero = kShades + 2;
  static constexpr std::size_t kMissing = kShades + 3;
  static constexpr std::size_t kClasses = kShades + 4;

  explicit ColourScale(const HeatMap& map);

  std::size_t class_of(float cell) const;
  static Colour colour_of(std::size_t cell_class);
  // The magnitude at a place of the scale, from 0 to 1.
  double magnitude_at(double place) const;
  bool is_logarithmic() const { return logarithmic_; }

 private:
  double least_ = 0;
  double most_ = 1;
  bool logarithmic_ = false;
};

}  // namespace gradmon
