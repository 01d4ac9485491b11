// SPDX-License-Identifier: Apache-2.0
#include "hooks/stats/l2_features.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_eigh.h>
#include <ATen/ops/mv.h>
#include <ATen/ops/nan_to_num.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/xlogy.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DispatchKeySet.h>

#include <algorithm>
#include <cmath>

#include "hooks/stats/readable.h"
#include "hooks/stats/tensor_stats.h"

namespace gradmon {
namespace {

constexpr std::int64_t kBasis = 48;        // maximum vectors of a Lanczos run
constexpr std::int64_t kEstimateEach = 4;  // products between two estimates

// WᵀW / ‖W‖_F². Its largest eigenvalue is between 1 / size() and 1.
class GramMatrix {
 public:
  GramMatrix(const at::Tensor& weight, double frobenius) : frobenius_(frobenius) {
    // Outside these bounds squares overflow or underflow in float32.
    const bool wide = weight.scalar_type() == at::kDouble || frobenius > 1e30 || frobenius < 1e-30;
    at::Tensor w = weight.size(0) < weight.size(1) ? weight.t() : weight;
    w = w.to(wide ? at::kDouble : at::kFloat);
    if (w.is_neg()) w = w.resolve_neg();
    weight_ = w.stride(0) == 1 || w.stride(1) == 1 ? w : w.contiguous();
    transposed_ = weight_.t();
  }

  std::int64_t size() const { return weight_.size(1); }
  at::Tensor times(const at::Tensor& vector) const { return half(transposed_, half(weight_, vector)); }

 private:
  at::Tensor half(const at::Tensor& matrix, const at::Tensor& vector) const {
    return at::mv(matrix, (vector / frobenius_).to(matrix.scalar_type())).to(at::kDouble);
  }

  const double frobenius_;
  at::Tensor weight_, transposed_;
};

struct Estimate {
  double value = 0;                                        // of the largest eigenvalue
  double error = std::numeric_limits<double>::infinity();  // residual / value
  at::Tensor vector;
};

// One Lanczos run; each vector is made orthogonal to all vectors before it.
class LanczosRun {
 public:
  LanczosRun(const GramMatrix& gram, const at::Tensor& first)
      : gram_(gram),
        limit_(std::min(kBasis, gram.size())),
        basis_(at::zeros({limit_, gram.size()}, first.options())),
        projected_(at::zeros({limit_, limit_}, at::kDouble)) {
    basis_[0].copy_(first);
  }

  bool full() const { return steps_ == limit_ || next_norm_ == 0; }

  void step() {
    at::Tensor next = gram_.times(basis_[steps_]);
    const at::Tensor known = basis_.narrow(0, 0, steps_ + 1);
    const at::Tensor share = at::mv(known, next);
    next = next - at::mv(known.t(), share);
    next = next - at::mv(known.t(), at::mv(known, next));
    projected_[steps_][steps_] = share[steps_];
    next_norm_ = next.norm().item<double>();
    if (!(next_norm_ > 1e-15)) next_norm_ = 0;
    steps_ += 1;
    if (full()) return;
    basis_[steps_].copy_(next / next_norm_);
    projected_[steps_ - 1][steps_] = next_norm_;
    projected_[steps_][steps_ - 1] = next_norm_;
  }

  Estimate estimate() const {
    const auto [values, vectors] = at::linalg_eigh(projected_.narrow(0, 0, steps_).narrow(1, 0, steps_));
    const double value = values[steps_ - 1].item<double>();
    const at::Tensor share = vectors.select(1, steps_ - 1);
    const double residual = next_norm_ * std::fabs(share[steps_ - 1].item<double>()) / value;
    const at::Tensor vector = at::mv(basis_.narrow(0, 0, steps_).t(), share.to(basis_.device()));
    return {value, residual, vector / vector.norm()};
  }

 private:
  const GramMatrix& gram_;
  const std::int64_t limit_;
  const at::Tensor basis_, projected_;  // projected_: the GramMatrix matrix projected onto the basis
  std::int64_t steps_ = 0;
  double next_norm_ = 1;
};

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

std::optional<DeviceScalars::Values> as_it_is(const double* number, double) {
  return DeviceScalars::Values{*number};
}

RouterFeature feature_of(const at::Tensor& number) {
  if (number.is_cpu()) return {number.item<double>(), {}};
  return {std::numeric_limits<double>::quiet_NaN(), pack_scalars({number}, 0, as_it_is)};
}

}  // namespace

WeightSpectrum::WeightSpectrum(std::string_view name) {
  std::seed_seq seed(name.begin(), name.end());
  random_.seed(seed);
}

at::Tensor WeightSpectrum::first_vector(std::int64_t size, const at::Device& device) {
  const auto options = at::TensorOptions(at::kDouble).pinned_memory(device.is_cuda());
  at::Tensor drawn = at::empty({size}, options);
  auto* numbers = static_cast<double*>(drawn.data_ptr());
  for (std::int64_t i = 0; i < size; ++i) numbers[i] = static_cast<double>(random_() >> 11) * 0x1p-52 - 1;
  drawn = drawn.to(device, /*non_blocking=*/true);
  drawn = drawn / drawn.norm();
  if (!found_.defined() || found_.size(0) != size) return drawn;
  drawn = at::nan_to_num(found_.to(device), 0, 0, 0) + drawn * 1e-3;
  return drawn / drawn.norm();
}

Spectrum WeightSpectrum::begin_on_device(const at::Tensor& weight) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  found_ = first_vector(std::min(weight.size(0), weight.size(1)), weight.device());
  return {kNan, kNan, kDeviceProducts, true, pending_spectrum(weight, found_)};
}

tl::expected<Spectrum, std::string> WeightSpectrum::measure(const at::Tensor& weight) {
  if (!weight.defined() || weight.dim() != 2) return tl::unexpected<std::string>("the weight is not 2-D");
  if (std::string why = why_unreadable(weight, "the weight"); !why.empty())
    return tl::unexpected(std::move(why));
  const PlainTorch plain;
  if (!weight.is_cpu()) return begin_on_device(weight);
  const auto stats = tensor_stats(weight, 0);
  if (!stats) return tl::unexpected(stats.error());
  Spectrum spectrum;
  spectrum.frobenius = spectrum.kernel_norm = stats->values[static_cast<std::size_t>(Op::norm)];
  if (!std::isfinite(spectrum.frobenius) || spectrum.frobenius == 0) return spectrum;

  const GramMatrix gram(weight, spectrum.frobenius);
  Estimate best;
  at::Tensor first = first_vector(gram.size(), weight.device());
  while (best.error > kTolerance && spectrum.products < kProducts) {
    LanczosRun lanczos(gram, first);
    while (best.error > kTolerance && !lanczos.full()) {
      lanczos.step();
      if (++spectrum.products % kEstimateEach == 0 || lanczos.full()) best = lanczos.estimate();
    }
    first = best.vector;
  }
  found_ = best.vector;
  spectrum.converged = best.error <= kTolerance;
  spectrum.kernel_norm = spectrum.frobenius * std::sqrt(best.value);
  return spectrum;
}

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

tl::expected<RouterFeature, std::string> router_cosine(const at::Tensor& weight) {
  if (std::string why = why_unreadable(weight, "the weight"); !why.empty())
    return tl::unexpected(std::move(why));
  if (weight.dim() != 2) return tl::unexpected<std::string>("the weight is not 2-D");
  const PlainTorch plain;
  const at::Tensor vectors = (weight.size(0) > weight.size(1) ? weight.t() : weight).to(at::kDouble);
  const auto experts = static_cast<double>(vectors.size(0));
  if (experts < 2) return tl::unexpected<std::string>("the cosine needs at least two experts");
  // Divides by the largest element first: otherwise squares could overflow or underflow.
  const at::Tensor largest = vectors.abs().amax(1, true);
  at::Tensor directions = vectors / largest.masked_fill(largest == 0, 1);
  const at::Tensor lengths = directions.norm(2, 1, true);
  directions = directions / lengths.masked_fill(lengths == 0, 1);
  const at::Tensor pairs = directions.sum(0).square().sum() - directions.square().sum();
  return feature_of(pairs / (experts * (experts - 1)));
}

tl::expected<RouterFeature, std::string> router_entropy(const at::Tensor& logits) {
  if (std::string why = why_unreadable(logits); !why.empty()) return tl::unexpected(std::move(why));
  if (logits.dim() == 0) return tl::unexpected<std::string>("the logits are a scalar");
  const PlainTorch plain;
  const at::Tensor p = logits.to(at::kDouble).softmax(-1);
  return feature_of(-at::xlogy(p, p).sum(-1).mean());
}

}  // namespace gradmon
