// SPDX-License-Identifier: Apache-2.0
#include "hooks/rows/reading.h"

#include <chrono>
#include <cmath>
#include <cstddef>
#include <exception>
#include <utility>

#include "hooks/device/device_fetch.h"
#include "hooks/rows/wrapper_tensor.h"
#include "hooks/stats/readable.h"

namespace gradmon {
namespace {

using Values = std::array<double, kOps>;

double elements_of(const Reading& reading) {
  double elements = 1;
  for (const std::int64_t size : reading.sizes) elements *= static_cast<double>(size);
  return elements;
}

double less(double a, double b) { return std::isnan(a) || a < b ? a : b; }
double greater(double a, double b) { return std::isnan(a) || a > b ? a : b; }

// `share`: the elements of `b`, divided by the elements of both.
double fold(Fold how, double a, double b, double share) {
  switch (how) {
    case Fold::least:
      return less(a, b);
    case Fold::greatest:
      return greater(a, b);
    case Fold::sum:
      return a + b;
    case Fold::mean_by_elements:
      return a * (1 - share) + b * share;
    case Fold::root_of_squares:
      return std::isnan(a) ? a : std::isnan(b) ? b : std::hypot(a, b);  // hypot(inf, NaN) is inf
  }
  return a;
}

void fold(Values& all, double before, const Values& one, double elements) {
  const double share = elements / (before + elements);
  for (std::size_t op = 0; op < kOps; ++op) all[op] = fold(kStatistics[op].fold, all[op], one[op], share);
}

}  // namespace

std::int64_t reading_time() noexcept {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

at::Tensor WatchedTensor::part_of(const at::Tensor& whole) const {
  const at::Tensor local = unwrapped(whole).tensor;
  if (!local.defined() || !sharding || !sharding->run) return local;
  return run_of(local, *sharding->run);
}

void Reading::read(const at::Tensor& given, const ReadOptions& options, const std::string& name,
                   HookFuse& fuse, double scale_of_it) noexcept {
  has_value = false;
  scale = scale_of_it;
  scope.reset();
  of_scale.reset();
  read_at = reading_time();
  fuse.guard(name, [&] {
    try {
      if (!is_wrapper(given)) return read_plain(given, options, name);
      Unwrapped inner = taken_apart(given);
      scope = std::move(inner.scope);
      if (!inner.why.empty()) return mark_not_applicable(std::move(inner.why));
      inner.values ? read_values(*inner.values, options.eps) : read_plain(inner.tensor, options, name);
      if (!inner.scale.defined() || stats.outcome != TensorStats::Outcome::measured) return;
      Reading scale_reading;
      scale_reading.read_at = read_at;
      scale_reading.read_plain(inner.scale, options.whole(), name);
      if (inner.scale_dtype != DType::unknown) scale_reading.stats.dtype = inner.scale_dtype;
      of_scale = std::make_shared<const Reading>(std::move(scale_reading));
    } catch (const std::exception& error) {
      mark_not_applicable(first_line(error.what()));
    }
  });
}

void Reading::read_plain(const at::Tensor& tensor, const ReadOptions& options, std::string_view name) {
  const auto version = version_of(tensor);
  const Sampling sampling{options.sample, name, options.step};
  if (why_no_array(tensor).empty() && read_in_memory(tensor, options.eps * scale, stats, sampling) &&
      version == version_of(tensor)) {
    why.clear();
    pending.reset();
    sizes.assign(tensor.sizes().begin(), tensor.sizes().end());
    has_value = true;
    return;
  }
  auto taken = start_tensor_stats(tensor, options.eps * scale);
  if (taken && version != version_of(tensor))
    taken = tl::unexpected<std::string>("the tensor was modified while it was read");
  // A tensor without an array may have no sizes; `taken` then has the reason.
  const at::IntArrayRef sizes_of_it = taken ? tensor.sizes() : at::IntArrayRef();
  take(std::move(taken), sizes_of_it);
}

void Reading::read_values(const ScaledValues& values, double eps) {
  const auto version = version_of(values.codes);
  auto taken = start_tensor_stats(values, eps * scale);
  if (taken && version != version_of(values.codes))
    taken = tl::unexpected<std::string>("the tensor was modified while it was read");
  take(std::move(taken), values.sizes);
}

void Reading::take(tl::expected<StartedStats, std::string> taken, at::IntArrayRef sizes_of_it) {
  why.clear();
  if (!taken) {
    why = first_line(taken.error());
    taken = StartedStats{{TensorStats::Outcome::not_applicable, DType::unknown, {}}, {}};
  }
  stats = taken->stats;
  pending = std::move(taken->pending);
  if (stats.outcome == TensorStats::Outcome::measured) sizes.assign(sizes_of_it.begin(), sizes_of_it.end());
  has_value = true;
}

void Reading::read_part(const WatchedTensor& parameter, const at::Tensor& tensor, const ReadOptions& options,
                        HookFuse& fuse, double scale_of_it) noexcept {
  const ParameterSharding* sharding = parameter.sharding.get();
  if (sharding != nullptr && sharding->run) {
    has_value = false;
    fuse.guard(parameter.name, [&] {
      Unwrapped whole = unwrapped(tensor);
      if (!whole.why.empty()) return mark_not_applicable(std::move(whole.why));
      read(parameter.part_of(tensor), options, parameter.name, fuse, scale_of_it);
    });
  } else {
    read(tensor, options, parameter.name, fuse, scale_of_it);
  }
  if (sharding != nullptr && !scope) scope = sharding->scope;
}

void Reading::mark_not_applicable(std::string reason) noexcept {
  stats = {TensorStats::Outcome::not_applicable, DType::unknown, {}};
  pending.reset();
  why = std::move(reason);
  has_value = true;
}

void forget(std::vector<Reading>& readings) {
  for (Reading& reading : readings) {
    reading.has_value = false;
    reading.pending.reset();
    reading.of_scale.reset();
  }
}

void resolve_pending(const std::vector<Reading*>& readings) {
  DeviceBatch batch;
  std::vector<Reading*> waiting;
  for (Reading* reading : readings) {
    if (!reading->pending) continue;
    batch.add(reading->pending);
    waiting.push_back(reading);
  }
  const auto values = batch.resolve();
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    waiting[i]->stats.values = values[i].value();
    waiting[i]->pending.reset();
  }
}

Reading folded(const std::vector<Reading>& readings) {
  Reading whole;
  double elements = 0;
  for (const Reading& reading : readings) {
    if (!reading.has_value || reading.stats.outcome == TensorStats::Outcome::empty) continue;
    if (reading.stats.outcome == TensorStats::Outcome::not_applicable) return reading;
    Values values = reading.stats.values;
    const double own = elements_of(reading);
    const std::int64_t read_at = whole.has_value ? whole.read_at : reading.read_at;
    if (whole.has_value) {
      const Values one = values;
      values = whole.stats.values;
      fold(values, elements, one, own);
    }
    whole = reading;
    whole.stats.values = values;
    whole.read_at = read_at;
    elements += own;
  }
  return whole;
}

}  // namespace gradmon
