// SPDX-License-Identifier: Apache-2.0
#include "hooks/stats/weight_spectrum.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/diag.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_svdvals.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <algorithm>

#include <cmath>
#include <limits>
#include <optional>

#include "control/debian_version.h"
#include "hooks/device/device_batch.h"
#include "hooks/stats/device_spectrum.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

double largest_singular_value(const at::Tensor& weight) {
  return at::linalg_svdvals(weight.to(at::kDouble))[0].item<double>();
}

bool agree(double a, double b, double tolerance = 1e-6) {
  return std::fabs(a - b) <= tolerance * std::fabs(b);
}

Spectrum measured(WeightSpectrum& spectrum, const at::Tensor& weight) {
  const auto result = spectrum.measure(weight);
  REQUIRE(result);
  return *result;
}

Spectrum measured(const at::Tensor& weight) {
  WeightSpectrum spectrum("weight");
  return measured(spectrum, weight);
}

void compare(const at::Tensor& weight, double tolerance = 1e-6) {
  const Spectrum got = measured(weight);
  const double wanted = largest_singular_value(weight);
  const double frobenius = weight.to(at::kDouble).norm().item<double>();
  CAPTURE(weight.sizes(), got.kernel_norm, wanted, got.products);
  CHECK(got.converged);
  CHECK(agree(got.kernel_norm, wanted, tolerance));
  CHECK(agree(got.stable_rank(), frobenius / wanted, tolerance));
}

TEST_CASE("kernel_norm is the largest singular value and sr the Frobenius norm over it") {
  for (const auto& [rows, columns] :
       {std::pair{1, 1}, {1, 9}, {9, 1}, {3, 3}, {64, 64}, {200, 40}, {40, 200}, {300, 256}}) {
    compare(at::randn({rows, columns}));
    compare(at::randn({rows, columns}) * 0.02 + 0.01);
  }
}

TEST_CASE("the largest singular value is found among others close to it") {
  const at::Tensor u = std::get<0>(at::randn({150, 150}, at::kDouble).svd());
  for (const double second : {1.0, 1 - 1e-8, 1 - 1e-5, 1 - 1e-3, 0.97}) {
    const at::Tensor values = at::linspace(0.1, second, 150, at::kDouble);
    values[0].fill_(1.0);
    const bool second_is_close = second > 1 - 1e-4;  // may be found instead of 1
    compare(at::matmul(u * values, u.t()), second_is_close ? std::max(1e-6, 1.1 * (1 - second)) : 1e-6);
  }
  compare(at::eye(70));
}

TEST_CASE("weights of any floating type and any strides are measured") {
  const at::Tensor weight = at::randn({80, 60});
  compare(weight.to(at::kHalf));
  compare(weight.to(at::kBFloat16));
  compare(weight.to(at::kDouble));
  compare(weight.t());
  compare(at::randn({80, 3, 60, 2}).select(3, 1).select(1, 2));
  compare(at::randn({60}).expand({80, 60}));
}

TEST_CASE("weights whose squares overflow or underflow are measured") {
  compare(at::randn({40, 30}) * 1e36);
  compare(at::randn({40, 30}) * 1e-36);
  compare(at::randn({40, 30}, at::kDouble) * 1e150);
}

TEST_CASE("a matrix of zeros has norm 0 and infinity or NaN in a weight becomes its norm") {
  const Spectrum none = measured(at::zeros({4, 5}));
  CHECK(none.kernel_norm == 0);
  CHECK(std::isnan(none.stable_rank()));
  at::Tensor weight = at::ones({4, 5});
  weight[1][2].fill_(std::numeric_limits<double>::infinity());
  CHECK(measured(weight).kernel_norm == std::numeric_limits<double>::infinity());
  CHECK(std::isnan(measured(weight).stable_rank()));
  weight[3][4].fill_(std::nan(""));
  CHECK(std::isnan(measured(weight).kernel_norm));
  CHECK(std::isnan(measured(weight).stable_rank()));
}

// Takes the path of a device tensor: sr and kernel_norm after `steps` steps; empty if not converged.
std::optional<std::pair<double, double>> spectrum_by_device_path(const at::Tensor& weight, int steps) {
  const c10::NoGradGuard no_grad;
  at::Tensor vector = at::randn({std::min(weight.size(0), weight.size(1))}, at::kDouble);
  vector = vector / vector.norm();
  std::optional<DeviceScalars::Values> values;
  for (int i = 0; i < steps; ++i) {
    DeviceBatch batch;
    batch.add(pending_spectrum(weight, vector));
    values = batch.resolve().front();
  }
  if (!values) return std::nullopt;
  return std::pair((*values)[0], (*values)[1]);
}

TEST_CASE("the device path converges to the same spectrum within six steps") {
  for (const auto& [rows, columns] :
       {std::pair{1, 1}, {1, 9}, {3, 3}, {64, 64}, {200, 40}, {40, 200}, {300, 256}}) {
    for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
      const at::Tensor weight = (at::randn({rows, columns}) * 0.02).to(type);
      const auto [sr, kernel_norm] = spectrum_by_device_path(weight, 6).value();
      const double wanted = largest_singular_value(weight);
      CAPTURE(rows, columns, kernel_norm, wanted);
      CHECK(agree(kernel_norm, wanted, 1e-5));
      CHECK(agree(sr, weight.to(at::kDouble).norm().item<double>() / wanted, 1e-5));
      if (const auto first = spectrum_by_device_path(weight, 1)) CHECK(first->second <= wanted * (1 + 1e-6));
    }
  }
  CHECK(agree(spectrum_by_device_path(at::eye(70), 1).value().second, 1));
}

TEST_CASE("on the device path too zeros have norm 0 and infinity or NaN becomes the norm") {
  const auto none = spectrum_by_device_path(at::zeros({4, 5}), 2).value();
  CHECK(none.second == 0);
  CHECK(std::isnan(none.first));
  at::Tensor weight = at::ones({4, 5});
  weight[1][2].fill_(std::numeric_limits<double>::infinity());
  CHECK(spectrum_by_device_path(weight, 1).value().second == std::numeric_limits<double>::infinity());
  CHECK(std::isnan(spectrum_by_device_path(weight, 1).value().first));
  weight[3][4].fill_(std::nan(""));
  CHECK(std::isnan(spectrum_by_device_path(weight, 1).value().second));
}

TEST_CASE("a weight that has changed little is measured with fewer products") {
  WeightSpectrum spectrum("layers.0.weight");
  const at::Tensor weight = at::randn({400, 300}) + 0.2;
  const int cold = measured(spectrum, weight).products;
  const at::Tensor next = weight + at::randn({400, 300}) * 1e-4;
  const Spectrum warm = measured(spectrum, next);
  CHECK(warm.products < cold);
  CHECK(agree(warm.kernel_norm, largest_singular_value(next)));
}

TEST_CASE("a singular value that grows past the tracked one is found") {
  WeightSpectrum spectrum("weight");
  at::Tensor weight = at::diag(at::linspace(0.1, 1, 50));
  CHECK(agree(measured(spectrum, weight).kernel_norm, 1));
  weight[0][0].fill_(2);
  CHECK(agree(measured(spectrum, weight).kernel_norm, 2));
  CHECK(agree(measured(spectrum, at::ones({3, 7})).kernel_norm, std::sqrt(21.0)));
}

TEST_CASE("the same weight under the same name gives the same bits") {
  const at::Tensor weight = at::randn({90, 120});
  CHECK(measured(weight).kernel_norm == measured(weight).kernel_norm);
}

TEST_CASE("measuring a spectrum leaves torch's random generator unchanged") {
  const at::Tensor weight = at::randn({90, 120});
  const auto generator = at::detail::getDefaultCPUGenerator();
  const at::Tensor before = generator.get_state();
  measured(weight);
  CHECK(before.equal(generator.get_state()));
}

TEST_CASE("tensors without a spectrum are refused with the reason") {
  WeightSpectrum spectrum("weight");
  CHECK(spectrum.measure(at::Tensor()).error() == "the weight is not 2-D");
  CHECK(spectrum.measure(at::ones({2, 2, 2})).error() == "the weight is not 2-D");
  CHECK(spectrum.measure(at::ones({2, 2}, at::kInt)).error() == "the weight is not floating-point");
  CHECK(spectrum.measure(at::ones({0, 2})).error() == "the weight has no elements");
  CHECK(spectrum.measure(at::empty({2, 2}, at::kMeta)).error() == "meta tensor, or its storage is freed");
  at::Tensor freed = at::ones({20, 20});
  freed.storage().set_nbytes(0);
  CHECK(spectrum.measure(freed).error() == "meta tensor, or its storage is freed");
}

TEST_CASE("the device path gives no numbers until the spectrum has converged") {
  const at::Tensor weight = at::diag(at::linspace(0.1, 1, 900, at::kDouble));
  CHECK_FALSE(spectrum_by_device_path(weight, 1));
  const auto followed = spectrum_by_device_path(weight, 12);
  REQUIRE(followed);
  CHECK(agree(followed->second, 1, 5e-6));
}

}  // namespace
}  // namespace gradmon
