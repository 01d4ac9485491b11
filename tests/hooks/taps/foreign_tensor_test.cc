// SPDX-License-Identifier: Apache-2.0
#include "hooks/taps/foreign_tensor.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

std::vector<double> counted(std::size_t count) {
  std::vector<double> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0.0);
  return numbers;
}

TEST_CASE("strides that torch has are read in place") {
  auto numbers = counted(24);
  const ForeignArray array{numbers.data() + 1, ElementType::float64, {3, 2, 4}, {48, 0, 8}};
  const auto tensor = tensor_of(array);
  REQUIRE(tensor);
  CHECK(tensor->data_ptr() == numbers.data() + 1);
  CHECK(at::equal(
      *tensor,
      at::arange(24, at::kDouble).view({4, 6}).slice(0, 0, 3).slice(1, 1, 5).unsqueeze(1).expand({3, 2, 4})));
}

TEST_CASE("a negative stride is read in place, in reversed order") {
  auto numbers = counted(6);
  const ForeignArray array{numbers.data() + 5, ElementType::float64, {2, 3}, {-24, -8}};
  const auto tensor = tensor_of(array);
  REQUIRE(tensor);
  CHECK(tensor->data_ptr() == numbers.data());
  CHECK(at::equal(*tensor, at::arange(6, at::kDouble).view({2, 3})));
}

TEST_CASE("elements between others or at odd addresses are copied") {
  std::vector<unsigned char> bytes(1 + 12 * 4);
  for (int i = 0; i < 4; ++i) {
    const double value = i + 0.5;
    std::memcpy(bytes.data() + 1 + 12 * i, &value, sizeof value);
  }
  ForeignArray array{bytes.data() + 1, ElementType::float64, {4}, {12}};
  REQUIRE(tensor_of(array));
  CHECK(at::equal(*tensor_of(array), at::tensor({0.5, 1.5, 2.5, 3.5}, at::kDouble)));
  array = {bytes.data() + 1 + 36, ElementType::float64, {1000, 4}, {0, -12}};
  const auto repeated = tensor_of(array);
  REQUIRE(repeated);
  CHECK(repeated->stride(0) == 0);  // one copy
  CHECK(at::equal(*repeated, at::tensor({0.5, 1.5, 2.5, 3.5}, at::kDouble).expand({1000, 4})));
}

TEST_CASE("an array without elements becomes a tensor without elements") {
  const auto tensor = tensor_of({nullptr, ElementType::float16, {2, 0}, {8, 8}});
  REQUIRE(tensor);
  CHECK(tensor->sizes() == at::IntArrayRef({2, 0}));
  CHECK(tensor->scalar_type() == at::kHalf);
}

}  // namespace
}  // namespace gradmon
