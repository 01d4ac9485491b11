// SPDX-License-Identifier: Apache-2.0
#include "hooks/stats/tensor_stats.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/quantize_per_tensor.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "hooks/device/device_stats.h"
#include "tests/hooks/stats/thread_count.h"
#include "tests/support/catch.h"

namespace gradmon {
namespace {

using Outcome = TensorStats::Outcome;
using Values = std::array<double, kOps>;

constexpr double kEps = 1e-3;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
const c10::ScalarType kFloats[] = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16};

// Computed by torch, op by op, on a copy in double.
Values torch_values(const at::Tensor& tensor, double eps) {
  const at::Tensor x = tensor.detach().to(at::kDouble).contiguous();
  return {x.min().item<double>(),
          x.max().item<double>(),
          x.mean().item<double>(),
          x.norm().item<double>(),
          x.isnan().sum().to(at::kDouble).item<double>(),
          x.abs().lt(eps).to(at::kDouble).mean().item<double>(),
          x.abs().max().item<double>()};
}

bool near(double found, double expected, double scale, double tolerance = 1e-9) {
  if (std::isnan(expected)) return std::isnan(found);
  return found == expected || std::fabs(found - expected) <= tolerance * std::max(std::fabs(expected), scale);
}

// A mean near 0 is compared on the scale of its terms.
void check_values(const Values& found, const Values& expected, double tolerance = 1e-9) {
  const double scale = std::max(std::fabs(expected[0]), std::fabs(expected[1]));
  for (std::size_t op = 0; op < kOps; ++op) {
    INFO(kStatistics[op].name << " " << found[op] << " expected " << expected[op]);
    CHECK(near(found[op], expected[op], op == 2 && std::isfinite(scale) ? scale : 0, tolerance));
  }
}

TensorStats measured(const at::Tensor& tensor, double eps = kEps) {
  const auto stats = tensor_stats(tensor, eps);
  REQUIRE(stats.has_value());
  return *stats;
}

void check_as_torch(const at::Tensor& tensor, double eps = kEps) {
  INFO(tensor.toString() << " of " << tensor.dim() << " dimensions and " << tensor.numel() << " elements");
  const TensorStats stats = measured(tensor, eps);
  REQUIRE(stats.outcome == Outcome::measured);
  const bool half = tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16;
  check_values(stats.values, torch_values(tensor, eps), half ? 1e-6 : 1e-9);
}

at::Tensor random(at::IntArrayRef sizes) { return at::randn(sizes, at::kDouble); }

TEST_CASE("every op of every float type is what torch computes in double") {
  for (const auto type : kFloats) {
    for (const std::int64_t size : {1, 2, 7, 8, 63, 64, 1000, 300001})
      check_as_torch(random({size}).to(type));
    check_as_torch(random({3, 4, 5}).to(type));
  }
}

TEST_CASE("NaN and infinities and zeros give what torch computes") {
  for (const auto type : kFloats) {
    for (const double special : {std::nan(""), kInfinity, -kInfinity, 0.0, -0.0}) {
      at::Tensor x = random({100}).to(type);
      x[37] = special;
      check_as_torch(x);
      x[99] = -kInfinity;
      check_as_torch(x);
    }
    check_as_torch(at::full({40}, std::nan(""), type));
    check_as_torch(at::zeros({40}, type));
  }
}

TEST_CASE("denormal and tiny and huge numbers keep their value") {
  for (const auto type : kFloats) {
    const double tiny = type == at::kHalf ? 6e-8 : type == at::kDouble ? 1e-160 : 1e-39;
    check_as_torch(at::full({33}, tiny, type), 1e-30);
    check_as_torch(at::full({33}, type == at::kHalf ? 65504 : type == at::kDouble ? 1e150 : 3e38, type));
  }
  check_as_torch(at::full({33}, 5e-324, at::kDouble), 1e-320);
}

TEST_CASE("integers and booleans are measured as doubles") {
  for (const auto type : {at::kChar, at::kByte, at::kShort, at::kInt, at::kLong}) {
    check_as_torch(at::randint(0, 100, {3, 777}, type));
    check_as_torch(at::randint(0, 100, {30, 40}, type).t().slice(0, 3, 33, 2));
  }
  check_as_torch(at::randn({5000}).gt(0));
  CHECK(measured(at::zeros({2}, at::kBool)).dtype == DType::boolean);
}

TEST_CASE("tensors with any strides are measured") {
  for (const auto type : kFloats) {
    const at::Tensor x = random({6, 700, 5}).to(type);
    check_as_torch(x.transpose(0, 2));
    check_as_torch(x.permute({1, 2, 0}));
    check_as_torch(x.slice(1, 100, 600));
    check_as_torch(x.slice(1, 3, 600, 7));
    check_as_torch(x.select(2, 4));
    check_as_torch(x.transpose(0, 1).slice(0, 1, 650).slice(2, 0, 5, 2));
    check_as_torch(x.reshape({-1}).unfold(0, 10, 3));
    check_as_torch(random({1, 1}).to(type).expand({4, 1}));
  }
}

TEST_CASE("an expanded tensor counts each element as often as it appears") {
  for (const auto type : kFloats) {
    check_as_torch(random({1, 300}).to(type).expand({40, 300}));
    check_as_torch(random({5, 1, 3}).to(type).expand({2, 5, 6, 3}).slice(1, 1, 4));
    check_as_torch(random({}).to(type).expand({1000}));
  }
}

TEST_CASE("a tensor without dimensions has one element and an empty tensor has no numbers") {
  for (const auto type : kFloats) {
    check_as_torch(random({}).to(type));
    CHECK(measured(at::empty({0}, type)).outcome == Outcome::empty);
    CHECK(measured(at::empty({3, 0, 2}, type)).outcome == Outcome::empty);
  }
}

TEST_CASE("tensors whose numbers cannot be read are not applicable") {
  CHECK(measured(at::Tensor()).outcome == Outcome::not_applicable);
  CHECK(measured(at::empty({3}, at::TensorOptions(at::kMeta))).outcome == Outcome::not_applicable);
  at::Tensor freed = at::zeros({100});
  freed.storage().set_nbytes(0);
  CHECK(measured(freed).outcome == Outcome::not_applicable);
  const at::Tensor wrapper = at::for_blob(nullptr, {100}).make_tensor();
  REQUIRE(wrapper.storage().nbytes() == 400);
  CHECK(measured(wrapper).outcome == Outcome::not_applicable);
  for (const auto type : {at::kComplexFloat, at::kQInt32, at::kBFloat16}) {
    at::Tensor other = type == at::kQInt32 ? at::quantize_per_tensor(at::zeros({100}), 0.1, 3, type)
                                           : at::zeros({100}, type);
    if (type == at::kComplexFloat) other = other.conj();
    other.storage().set_nbytes(0);
    CHECK(measured(other).outcome == Outcome::not_applicable);
  }
}

TEST_CASE("sparse and complex and quantised and negated tensors are measured by their values") {
  const at::Tensor indices = at::tensor({0, 2, 2}, at::kLong).unsqueeze(0);
  const at::Tensor sparse = at::sparse_coo_tensor(indices, at::tensor({1.0, 2.0, 3.0}, at::kDouble), {4});
  check_values(measured(sparse).values, torch_values(sparse.to_dense(), kEps));
  const at::Tensor nothing = at::sparse_coo_tensor(indices.slice(1, 0, 0), at::zeros({0}, at::kDouble), {4});
  check_values(measured(nothing).values, torch_values(at::zeros({4}, at::kDouble), kEps));
  const at::Tensor rows = at::tensor({1.0, 0.0, 0.0, -7.0}, at::kDouble).reshape({2, 2}).to_sparse_csr();
  check_values(measured(rows).values, torch_values(rows.to_dense(), kEps));
  const at::Tensor complex = at::randn({3, 50}, at::kComplexDouble);
  for (const at::Tensor& x : {complex, complex.t(), complex.conj()}) {
    check_values(measured(x).values, torch_values(at::view_as_real(x.resolve_conj()), kEps));
    CHECK(measured(x).dtype == DType::complex128);
  }
  const at::Tensor values = at::randn({3}, at::kComplexDouble);
  const at::Tensor complex_sparse = at::sparse_coo_tensor(indices, values, {4});
  check_values(measured(complex_sparse).values,
               torch_values(at::view_as_real(complex_sparse.to_dense()), kEps));
  const at::Tensor complex_rows = at::eye(2, at::kComplexDouble).to_sparse_csr();
  check_values(measured(complex_rows).values,
               torch_values(at::view_as_real(at::eye(2, at::kComplexDouble)), kEps));
  const at::Tensor quantised = at::quantize_per_tensor(at::rand({50}), 0.1, 3, at::kQInt8);
  check_values(measured(quantised).values, torch_values(quantised.dequantize(), kEps));
  const at::Tensor negated = at::imag(at::randn({50}, at::kComplexDouble).conj());
  REQUIRE(negated.is_neg());
  check_values(measured(negated).values, torch_values(negated.resolve_neg(), kEps));
}

TEST_CASE("the number of threads does not change a bit") {
  const at::Tensor x = at::randn({3, 1000003});
  const auto with_threads = [&](int threads) {
    const ThreadCount count(threads);
    return measured(x).values;
  };
  CHECK(with_threads(1) == with_threads(3));
}

Values values_by_device_path(const at::Tensor& tensor, double eps) {
  const PendingScalars pending = device_stats(tensor, eps);
  return pending->finish(pending->numbers.data_ptr<double>(), pending->elements).value();
}

TEST_CASE("the device path gives what torch computes") {
  const c10::NoGradGuard no_grad;
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    at::Tensor x = random({50, 20}).to(type);
    x[3][4] = 0;
    check_values(values_by_device_path(x, kEps), torch_values(x, kEps));
    check_values(values_by_device_path(x.t(), 1e-8), torch_values(x, 1e-8));
    x[5][5] = std::nan("");
    check_values(values_by_device_path(x, kEps), torch_values(x, kEps));
  }
  const at::Tensor integers = at::randint(-5, 5, {77}, at::kInt);
  check_values(values_by_device_path(integers, kEps), torch_values(integers, kEps));
}

TEST_CASE("reading a tensor that requires grad changes neither its version nor the gradient mode") {
  at::Tensor x = at::randn({100}).requires_grad_();
  const auto version = x._version();
  check_as_torch(x);
  CHECK(x._version() == version);
  CHECK(c10::GradMode::is_enabled());
  CHECK(!x.grad().defined());
}

// A tensor of `rows` x `columns` numbers with a scale for each block.
ScaledValues scaled(std::int64_t rows, std::int64_t columns, std::int64_t high, std::int64_t wide) {
  ScaledValues values;
  values.codes = at::randint(-9, 9, {rows, columns}, at::kChar);
  values.scale = at::rand({(rows + high - 1) / high, (columns + wide - 1) / wide});
  values.block_rows = high;
  values.block_columns = wide;
  return values;
}

at::Tensor numbers_of(const ScaledValues& values) {
  const at::Tensor each = values.scale.repeat_interleave(values.block_rows, 0)
                              .repeat_interleave(values.block_columns, 1)
                              .narrow(0, 0, values.rows())
                              .narrow(1, 0, values.columns());
  return values.codes.to(at::kFloat).mul(each);
}

TEST_CASE("numbers with scales are computed in pieces of bounded size, each number once") {
  constexpr std::int64_t kMost = 100;
  for (const ScaledValues& values : {scaled(1, 1003, 1, 1003), scaled(1003, 1, 7, 1), scaled(37, 53, 4, 16),
                                     scaled(9, 300, 128, 128), scaled(64, 64, 1, 32), scaled(3, 3, 3, 3)}) {
    double sum = 0;
    std::int64_t count = 0;
    each_piece(values, kMost, [&](const at::Tensor& piece) {
      CHECK(piece.numel() <= kMost);
      count += piece.numel();
      sum += piece.to(at::kDouble).square().sum().item<double>();
    });
    const at::Tensor numbers = numbers_of(values);
    CHECK(count == numbers.numel());
    CHECK(near(sum, numbers.to(at::kDouble).square().sum().item<double>(), 0));
    const auto started = start_tensor_stats(values, kEps);
    REQUIRE(started.has_value());
    check_values(started->stats.values, torch_values(numbers, kEps));
  }
}

TEST_CASE("numbers with scales without memory are not applicable") {
  ScaledValues values = scaled(4, 4, 1, 4);
  values.scale = values.scale.to(at::kMeta);
  const auto started = start_tensor_stats(values, kEps);
  REQUIRE(started.has_value());
  CHECK(started->stats.outcome == Outcome::not_applicable);
}

double gibibytes_available() {
  std::ifstream memory("/proc/meminfo");
  for (std::string key; memory >> key;) {
    double kibibytes = 0;
    if (key == "MemAvailable:" && memory >> kibibytes) return kibibytes / (1 << 20);
  }
  return 0;
}

constexpr std::int64_t kMany = (std::int64_t{1} << 31) + 11;

TEST_CASE("more than two to the 31 elements are counted right when expanded") {
  const auto stats = measured(at::full({1}, 2.0).expand({kMany}));
  CHECK(stats.values[static_cast<std::size_t>(Op::mean)] == 2.0);
  CHECK(near(stats.values[static_cast<std::size_t>(Op::norm)], 2 * std::sqrt(static_cast<double>(kMany)), 0));
  const auto nans = measured(at::full({1}, std::nan("")).expand({kMany}));
  CHECK(nans.values[static_cast<std::size_t>(Op::nans)] == static_cast<double>(kMany));
}

TEST_CASE("more than two to the 31 elements are counted right in memory") {
  if (gibibytes_available() < 8) {
    WARN("skipped: less than 8 GiB of memory are available");
    return;
  }
  at::Tensor x = at::full({kMany}, 0.5, at::kBFloat16);
  x[kMany - 1] = -3.0;
  x[0] = 0.0;
  const auto values = measured(x).values;
  const auto count = static_cast<double>(kMany);
  CHECK(values[static_cast<std::size_t>(Op::min)] == -3.0);
  CHECK(values[static_cast<std::size_t>(Op::max)] == 0.5);
  CHECK(near(values[static_cast<std::size_t>(Op::mean)], (0.5 * (count - 2) - 3) / count, 0));
  CHECK(near(values[static_cast<std::size_t>(Op::norm)], std::sqrt(0.25 * (count - 2) + 9), 0));
  CHECK(values[static_cast<std::size_t>(Op::zeros)] == 1 / count);
}

}  // namespace
}  // namespace gradmon
