// SPDX-License-Identifier: Apache-2.0
#include "hooks/stats/device_spectrum.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/mv.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace gradmon {
namespace {

constexpr double kNothing = 1e-15;  // a norm up to this is rounding error of a vector of norm 1
constexpr int kSquarings = 30;
constexpr double kTolerance = 1e-5;  // of the residual, relative to the eigenvalue
static_assert(kDeviceProducts == 48);
constexpr const char* kNotConverged = "the largest singular value has not converged within 48 products";

// 1 / length; 0 if the length is only rounding error.
at::Tensor scale_to_one(const at::Tensor& length) {
  return at::reciprocal(length).masked_fill(length <= kNothing, 0);
}

// One Lanczos run: an orthonormal basis (its rows), and WᵀW projected onto the basis.
struct KrylovBasis {
  at::Tensor basis;      // [count, n]
  at::Tensor projected;  // [count, count]
  at::Tensor remainder;  // norm of the part of the last product that is orthogonal to the basis
};

KrylovBasis run(const at::Tensor& w, const at::Tensor& first, std::int64_t count) {
  KrylovBasis lanczos{
      at::zeros({count, first.size(0)}, first.options()), at::zeros({count, count}, first.options()), {}};
  const at::Tensor transposed = w.t();
  const auto times = [&](const at::Tensor& matrix, const at::Tensor& vector) {
    return at::mv(matrix, vector.to(matrix.scalar_type())).to(at::kDouble);
  };
  lanczos.basis[0].copy_(first);
  for (std::int64_t i = 0; i < count; ++i) {
    at::Tensor next = times(transposed, times(w, lanczos.basis[i]));
    const at::Tensor share = at::mv(lanczos.basis, next);
    lanczos.projected[i][i].copy_(share[i]);
    next = next - at::mv(lanczos.basis.t(), share);
    next = next - at::mv(lanczos.basis.t(), at::mv(lanczos.basis, next));
    const at::Tensor length = next.norm();
    lanczos.remainder = length;
    if (i + 1 == count) break;
    const at::Tensor scale = scale_to_one(length);
    lanczos.basis[i + 1].copy_(next * scale);
    lanczos.projected[i][i + 1].copy_(length * length * scale);
    lanczos.projected[i + 1][i].copy_(length * length * scale);
  }
  return lanczos;
}

// The eigenvector, of norm 1, of the largest eigenvalue of a symmetric matrix without negative eigenvalues:
// a column of a high power of the matrix.
at::Tensor leading_eigenvector(const at::Tensor& matrix) {
  at::Tensor power = matrix;
  for (int i = 0; i < kSquarings; ++i) {
    power = power * scale_to_one(power.norm());
    power = power.matmul(power);
  }
  const at::Tensor largest = power.diagonal().argmax().unsqueeze(0);
  const at::Tensor direction = power.index_select(1, largest).squeeze(1);
  return direction * scale_to_one(direction.norm());
}

std::optional<DeviceScalars::Values> norms(const double* numbers, double) {
  const double frobenius = numbers[0];
  const double share = numbers[1];
  const bool plain = std::isfinite(frobenius) && frobenius > 0;
  if (plain && !(numbers[2] <= kTolerance * share)) return std::nullopt;
  const double largest = plain ? frobenius * std::sqrt(share) : frobenius;
  return DeviceScalars::Values{largest > 0 ? frobenius / largest : std::numeric_limits<double>::quiet_NaN(),
                               largest};
}

}  // namespace

PendingScalars pending_spectrum(const at::Tensor& weight, at::Tensor& vector) {
  const auto type = weight.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor frobenius = weight.norm(2, at::kDouble);
  at::Tensor w = weight.size(0) < weight.size(1) ? weight.t() : weight;
  w = (w.to(type) / frobenius).to(type);
  const KrylovBasis lanczos = run(w, vector, std::min<std::int64_t>(kDeviceProducts, vector.size(0)));
  const at::Tensor share = leading_eigenvector(lanczos.projected);
  const at::Tensor value = share.dot(at::mv(lanczos.projected, share));
  const at::Tensor residual = lanczos.remainder * share[share.size(0) - 1].abs();
  vector = at::mv(lanczos.basis.t(), share);
  vector = vector * scale_to_one(vector.norm());
  return pack_scalars({frobenius, value, residual}, 0, norms, kNotConverged);
}

}  // namespace gradmon
