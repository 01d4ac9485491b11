// SPDX-License-Identifier: Apache-2.0
#include "hooks/device/zero_threshold.h"
#include "hooks/stats/kernels.h"
#include "tests/support/catch.h"

#include <hwy/targets.h>

#include <cstring>
#include <random>
#include <vector>

namespace gradmon {
namespace {

constexpr FloatType kTypes[] = {FloatType::float32, FloatType::float64, FloatType::float16,
                                FloatType::bfloat16};
constexpr double kEps = 1e-3;

// Runs `check` once for each instruction set that this machine has.
template <typename Check>
void on_every_target(Check check) {
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    INFO("target " << hwy::TargetName(target));
    check();
  }
  hwy::SetSupportedTargetsForTest(0);
}

std::uint16_t half_bits(double x) {
  if (std::isnan(x)) return 0x7e00;
  const std::uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  const double magnitude = std::fabs(x);
  if (magnitude >= 65504) return static_cast<std::uint16_t>(sign | (std::isinf(x) ? 0x7c00 : 0x7bff));
  const int exponent = magnitude < std::ldexp(1, -14) ? -14 : std::ilogb(magnitude);
  const int fraction = static_cast<int>(std::ldexp(magnitude, 10 - exponent));
  return static_cast<std::uint16_t>(sign |
                                    (fraction < 0x400 ? fraction : ((exponent + 14) << 10) + fraction));
}

// `values` stored as `type`. Values that the type cannot hold are rounded.
std::vector<double> storage_of(FloatType type, const std::vector<double>& values) {
  std::vector<double> storage(values.size() + 1);
  auto* bytes = reinterpret_cast<unsigned char*>(storage.data());
  for (const double x : values) {
    const auto narrow = static_cast<float>(x);
    const std::uint16_t half = half_bits(x);
    std::uint32_t wide;
    std::memcpy(&wide, &narrow, 4);
    const auto upper = static_cast<std::uint16_t>(wide >> 16);
    const void* source = type == FloatType::float64   ? static_cast<const void*>(&x)
                         : type == FloatType::float32 ? static_cast<const void*>(&narrow)
                         : type == FloatType::float16 ? static_cast<const void*>(&half)
                                                      : static_cast<const void*>(&upper);
    std::memcpy(bytes, source, size_of(type));
    bytes += size_of(type);
  }
  return storage;
}

bool near(double a, double b, double tolerance = 1e-12) {
  if (std::isnan(b)) return std::isnan(a);
  return a == b || std::fabs(a - b) <= tolerance * std::fabs(b);
}

bool is_half(FloatType type) { return size_of(type) == 2; }

void check_agreement(FloatType type, const std::vector<double>& values, double eps = kEps) {
  const auto storage = storage_of(type, values);
  const auto expected = reference_stats(type, storage.data(), values.size(), eps);
  on_every_target([&] {
    const auto found = kernel_stats(type, storage.data(), values.size(), eps);
    INFO("type " << static_cast<int>(type) << " of " << values.size());
    CHECK(found.elements == expected.elements);
    CHECK(found.nans == expected.nans);
    CHECK(found.zeros == expected.zeros);
    if (expected.nans == 0) {
      CHECK(found.min == expected.min);
      CHECK(found.max == expected.max);
    }
    const double tolerance = is_half(type) ? 1e-6 : 1e-12;
    CHECK(near(found.sum, expected.sum, tolerance));
    CHECK(near(found.sum_squares, expected.sum_squares, tolerance));
  });
}

// All of one sign: no cancellation, so a relative tolerance suits the sum.
std::vector<double> random_values(std::size_t count, double scale) {
  std::mt19937_64 engine(count + 1);
  std::uniform_real_distribution<double> uniform(1e-4, 1);
  std::vector<double> values(count);
  for (double& x : values) x = uniform(engine) * scale;
  return values;
}

TEST_CASE("every instruction set gives the numbers of the plain loop at every length") {
  for (const FloatType type : kTypes) {
    for (std::size_t count = 0; count <= 200; ++count) check_agreement(type, random_values(count, -3));
    check_agreement(type, random_values(100003, 0.01));
  }
}

TEST_CASE("sums of halves are within 1e-6 of the sum of magnitudes") {
  for (const FloatType type : {FloatType::float16, FloatType::bfloat16}) {
    std::mt19937_64 engine(7);
    std::normal_distribution<double> normal;
    std::vector<double> values(300007);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = normal(engine) + (i < 100000 ? 1 : 0);
    const auto storage = storage_of(type, values);
    const auto expected = reference_stats(type, storage.data(), values.size(), kEps);
    for (double& x : values) x = std::fabs(x);
    const double magnitudes = reference_stats(type, storage_of(type, values).data(), values.size(), kEps).sum;
    on_every_target([&] {
      const auto found = kernel_stats(type, storage.data(), values.size(), kEps);
      CHECK(std::fabs(found.sum - expected.sum) <= 1e-6 * magnitudes);
      CHECK(near(found.sum_squares, expected.sum_squares, 1e-6));
    });
  }
}

// In float, 1 + 2^-24 is 1: each lane begins with 1, and every later addition (of squares for 2^-12) is lost.
TEST_CASE("sums of halves keep the bound where every addition rounds down") {
  for (const double lost : {std::ldexp(1, -24), std::ldexp(1, -12)}) {
    for (const std::size_t period : {256, 1024, 4096}) {
      std::vector<double> values(1U << 15, lost);
      for (std::size_t i = 0; i < values.size(); ++i)
        if (i % period < 16) values[i] = 1;
      for (const FloatType type : {FloatType::float16, FloatType::bfloat16}) check_agreement(type, values);
    }
  }
}

TEST_CASE("squares of bfloat16 that float cannot hold are added in double") {
  for (const double scale : {1e-38, 1e-30, 1e-20, 1e-15, 1e-14, 1e17, 1e18, 1e20, 3e38}) {
    check_agreement(FloatType::bfloat16, random_values(5000, scale));
    check_agreement(FloatType::bfloat16, random_values(5000, -scale));
    auto mixed = random_values(40000, 1);  // some blocks in range, some not
    for (std::size_t i = 20000; i < 20100; ++i) mixed[i] *= scale;
    check_agreement(FloatType::bfloat16, mixed);
  }
}

TEST_CASE("minimum and maximum of halves of one sign, of both, and of zeros") {
  const std::vector<std::vector<double>> sets = {{-3, -1, -2}, {3, 1, 2}, {-3, 1, 2, -1}, {0.0, -0.0},
                                                 {-0.0, -2},   {0.0, 2},  {-0.0},         {-65504, 65504}};
  for (const FloatType type : {FloatType::float16, FloatType::bfloat16}) {
    for (const auto& set : sets) {
      std::vector<double> values(320);
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = set[i % set.size()];
      check_agreement(type, values);
    }
  }
}

TEST_CASE("counts are right for arrays of many blocks") {
  check_agreement(FloatType::bfloat16, std::vector<double>((1U << 21) + 5, 1e-9));
  check_agreement(FloatType::float32, std::vector<double>((1U << 20) + 1, std::nan("")));
}

TEST_CASE("special values are counted and ordered alike at every position in a vector") {
  const double infinity = std::numeric_limits<double>::infinity();
  const double specials[] = {std::nan(""), infinity, -infinity, 0.0,   -0.0, 5e-324,
                             1e-40,        6e-8,     1e-3,      65504, 3e38};
  for (const FloatType type : kTypes) {
    for (const double special : specials) {
      for (std::size_t place = 0; place < 70; place += 3) {
        auto values = random_values(70, 1);
        values[place] = special;
        check_agreement(type, values);
      }
    }
  }
}

TEST_CASE("denormals of each type are exact") {
  check_agreement(FloatType::float32, std::vector<double>(99, 1.4e-45), 1e-8);
  check_agreement(FloatType::float16, std::vector<double>(99, std::ldexp(3, -24)), 1e-8);
  check_agreement(FloatType::bfloat16, std::vector<double>(99, 1e-39), 1e-39);
  check_agreement(FloatType::float64, std::vector<double>(99, 5e-324), 1e-320);
}

TEST_CASE("the float threshold separates floats as the double threshold does") {
  for (const double eps : {1e-8, 1e-3, 0.1, 0.0, 1e-45, 1e-50, 5e-324, 1e39, 3.5e38, 1.0}) {
    const float threshold = float_threshold(eps);
    INFO("eps " << eps);
    CHECK(static_cast<double>(threshold) >= eps);
    CHECK(!(static_cast<double>(std::nextafter(threshold, -1.0F)) >= eps && eps > 0));
    check_agreement(FloatType::float32, std::vector<double>(40, static_cast<double>(threshold)), eps);
    check_agreement(FloatType::float32, std::vector<double>(40, std::nextafter(threshold, 0.0F)), eps);
  }
}

TEST_CASE("the threshold of halves separates all their values as the double threshold does") {
  const double nan = std::nan("");
  for (const double eps : {1e-8, 1e-3, 0.1, 0.0, -1.0, 5.9604644775390625e-8, 6e-8, 1e-45, 5e-324, 65504.0,
                           65505.0, 1e39, nan}) {
    for (const FloatType type : {FloatType::float16, FloatType::bfloat16}) {
      const std::uint16_t threshold = half_threshold(type, eps);
      int wrong = 0;
      for (std::uint32_t bits = 0; bits < 0x8000; ++bits) {
        const bool below = widened(type, static_cast<std::uint16_t>(bits)) < eps;
        if (below != (bits < threshold)) ++wrong;
      }
      INFO("eps " << eps << ", type " << static_cast<int>(type));
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("parts add up to the whole and repeated elements count each time") {
  const auto values = random_values(1000, 2);
  const auto storage = storage_of(FloatType::float64, values);
  const auto whole = kernel_stats(FloatType::float64, storage.data(), 1000, kEps);
  auto parts = kernel_stats(FloatType::float64, storage.data(), 300, kEps);
  parts.add(kernel_stats(FloatType::float64, storage.data() + 300, 700, kEps));
  CHECK(parts.elements == 1000);
  CHECK(parts.min == whole.min);
  CHECK(parts.max == whole.max);
  CHECK(parts.zeros == whole.zeros);
  CHECK(near(parts.sum, whole.sum));
  parts.repeat(3);
  CHECK(parts.elements == 3000);
  CHECK(near(parts.sum_squares, 3 * whole.sum_squares));
}

}  // namespace
}  // namespace gradmon
