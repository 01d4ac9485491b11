// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>

namespace gradmon {

// Random numbers from a seed: the same on every machine, unlike those of std::uniform_*_distribution.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 0x632be59bd9b4e019u) {}

  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15u;
    std::uint64_t mixed = state_;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    return mixed ^ (mixed >> 31);
  }
  // least ≤ result ≤ most.
  std::int64_t between(std::int64_t least, std::int64_t most) {
    return least + static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(most - least + 1));
  }
  bool chance(std::int64_t per_mille) { return between(0, 999) < per_mille; }
  // Log-uniform: small numbers are frequent, large ones rare.
  std::int64_t log_uniform(double least, double most) {
    const double share = static_cast<double>(next() >> 11) * 0x1.0p-53;
    return static_cast<std::int64_t>(least * std::pow(most / least, share));
  }

 private:
  std::uint64_t state_;
};

}  // namespace gradmon
