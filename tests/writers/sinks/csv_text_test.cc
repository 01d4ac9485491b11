// SPDX-License-Identifier: Apache-2.0
#include "writers/sinks/csv_text.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>

#include "tests/support/catch.h"

using namespace gradmon;

namespace {

struct Case {
  double value;
  int ndigits;
  const char* text;
};

std::string number(double value, int ndigits) {
  std::string line;
  append_number(line, value, ndigits);
  return line;
}

std::string count(double value) {
  std::string line;
  append_count(line, value);
  return line;
}

}  // namespace

TEST_CASE("a number is printed as Python prints its rounded value") {
  const std::vector<Case> cases = {
      {0.0, 6, "0.0"},
      {-0.0, 6, "-0.0"},
      {1.0, 6, "1.0"},
      {6.6531862, 6, "6.653186"},
      {-2.49193905, 6, "-2.491939"},
      {0.034626, 6, "0.034626"},
      {1.5, 0, "2.0"},
      {2.5, 0, "2.0"},
      {0.125, 2, "0.12"},
      {0.375, 2, "0.38"},
      {2.675, 2, "2.67"},
      {0.0001, 6, "0.0001"},
      {9.99e-05, 5, "0.0001"},
      {1e-05, 6, "1e-05"},
      {1.5e-05, 6, "1.5e-05"},
      {5.1e-07, 6, "1e-06"},
      {123456789.12345679, 6, "123456789.123457"},
      {1234567890123.4568, 6, "1234567890123.4568"},
      {9007199254740992.0, 6, "9007199254740992.0"},
      {1000000000000000.0, 6, "1000000000000000.0"},
      {1e+16, 6, "1e+16"},
      {1.5e+16, 6, "1.5e+16"},
      {1e+22, 6, "1e+22"},
      {1e+23, 6, "1e+23"},
      {1.7976931348623157e+308, 6, "1.7976931348623157e+308"},
      {0.30000000000000004, 17, "0.30000000000000004"},
      {0.30000000000000004, 20, "0.30000000000000004"},
      {3.14159, 3, "3.142"},
      {-3.14159, 3, "-3.142"},
      {0.9999999, 6, "1.0"},
      {99999.9999999, 6, "100000.0"},
      {-1e-05, 6, "-1e-05"},
      {100.0, 6, "100.0"},
      {1234.5, 1, "1234.5"},
      {1.0, 1000, "1.0"},
      {2.5, -3, "2.0"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.value, c.ndigits);
    CHECK(number(c.value, c.ndigits) == c.text);
  }
}

// The C library rounds and reads back; the shortest text is found by trying.
std::string slowly(double value, int ndigits) {
  char text[400];
  std::snprintf(text, sizeof text, "%.*f", ndigits, value);
  const double rounded = std::strtod(text, nullptr);
  if (rounded == 0 && value != 0) {
    std::snprintf(text, sizeof text, "%.*e", std::max(ndigits, 1) - 1, value);
    return text;
  }
  int digits = 1;
  do std::snprintf(text, sizeof text, "%.*e", digits++ - 1, rounded);
  while (std::strtod(text, nullptr) != rounded);
  const double size = std::fabs(rounded);
  if (size != 0 && (size < 1e-4 || size >= 1e16)) return text;
  const int exponent = std::atoi(std::strchr(text, 'e') + 1);
  const int decimals = std::max(digits - 2 - exponent, 1);
  std::snprintf(text, sizeof text, "%.*f", decimals, rounded);
  return text;
}

TEST_CASE("random numbers and ties are printed as the C library rounds them") {
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> exponents(-25, 25);
  std::normal_distribution<double> normal;
  for (int i = 0; i < 60000; ++i) {
    const int ndigits = static_cast<int>(random() % 18);
    const double scaled = normal(random) * std::pow(10, exponents(random));
    const double tie = std::ldexp(static_cast<double>(random() % 4096), -static_cast<int>(random() % 12));
    const double decimal = std::round(normal(random) * 1e4) / std::pow(10, static_cast<int>(random() % 9));
    for (const double value : {scaled, tie, -tie, decimal}) {
      const std::string expected = slowly(value, ndigits);
      if (number(value, ndigits) == expected) continue;
      CAPTURE(value, ndigits);
      REQUIRE(number(value, ndigits) == expected);
    }
  }
}

TEST_CASE("a value that would round to 0 keeps its significant digits") {
  const std::vector<Case> cases = {
      {1.23456789e-09, 6, "1.23457e-09"}, {-1e-09, 6, "-1.00000e-09"}, {5e-324, 6, "4.94066e-324"},
      {4.9e-07, 6, "4.90000e-07"},        {0.04, 0, "4e-02"},          {3e-09, 3, "3.00e-09"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.value, c.ndigits);
    CHECK(number(c.value, c.ndigits) == c.text);
  }
}

TEST_CASE("values that are not finite are printed as nan and inf and -inf") {
  constexpr double inf = std::numeric_limits<double>::infinity();
  CHECK(number(std::nan(""), 6) == "nan");
  CHECK(number(-std::nan(""), 6) == "nan");
  CHECK(number(inf, 6) == "inf");
  CHECK(number(-inf, 6) == "-inf");
  CHECK(count(std::nan("")) == "nan");
}

TEST_CASE("a count has no decimal point") {
  CHECK(count(0) == "0");
  CHECK(count(40) == "40");
  CHECK(count(4294967296.0) == "4294967296");
  CHECK(count(2.5) == "3");
  CHECK(count(-7) == "-7");
  CHECK(count(-0.0) == "-0");
  CHECK(count(999999999999999.0) == "999999999999999");
  CHECK(count(1e15) == "1000000000000000");
  CHECK(count(1e22) == "10000000000000000000000");
}

namespace {

std::string significant(double value, int digits) {
  std::string line(kNumberRoom, ' ');
  line.resize(static_cast<std::size_t>(write_significant(line.data(), value, digits) - line.data()));
  return line;
}

}  // namespace

TEST_CASE("significant digits are those of Python's %g, in Python's shortest form") {
  CHECK(significant(24.431671234, 7) == "24.43167");
  CHECK(significant(-1.23456789e-09, 7) == "-1.234568e-09");
  CHECK(significant(123456789.0, 7) == "123456800.0");
  CHECK(significant(9.99999996, 7) == "10.0");
  CHECK(significant(1000.0, 7) == "1000.0");
  CHECK(significant(0.001, 1) == "0.001");
  CHECK(significant(0.0, 7) == "0.0");
  CHECK(significant(-std::nan(""), 7) == "nan");
  CHECK(significant(-std::numeric_limits<double>::infinity(), 7) == "-inf");
  CHECK(significant(5e-324, 7) == "5e-324");
  CHECK(significant(1.7976931348623157e+308, 17) == "1.7976931348623157e+308");
  std::mt19937_64 random(7);
  for (int i = 0; i < 100'000; ++i) {
    const int digits = 1 + static_cast<int>(random() % 17);
    const std::uint64_t bits = i % 2 == 0 ? random() : (random() >> 12U | (1011 + random() % 24) << 52U);
    double value = 0;
    std::memcpy(&value, &bits, sizeof value);
    if (!std::isfinite(value)) continue;
    char text[64];
    std::snprintf(text, sizeof text, "%.*g", digits, value);
    CAPTURE(value, digits, text);
    std::string expected;
    const double rounded = std::strtod(text, nullptr);
    append_repr(expected, std::isfinite(rounded) ? rounded : value);
    REQUIRE(significant(value, digits) == expected);
  }
}
