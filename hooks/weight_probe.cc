// SPDX-License-Identifier: Apache-2.0
#include "hooks/weight_probe.h"

#include <algorithm>
#include <numeric>

namespace gradmon {

WeightProbe::WeightProbe(const std::vector<Watched>& watched, double eps, HookFuse& fuse)
    : watched_(watched),
      eps_(eps),
      fuse_(fuse),
      gradients_(watched.size()),
      origins_(watched.size()),
      updates_(watched.size()) {
  for (std::size_t i = 0; i < watched.size(); ++i)
    places_.emplace(watched[i].tensor.unsafeGetTensorImpl(), i);
}

void WeightProbe::begin_step() {
  for (auto* readings : {&gradients_, &origins_, &updates_}) {
    for (Reading& reading : *readings) reading.present = false;
  }
}

std::vector<std::size_t> WeightProbe::places_of(const std::vector<at::Tensor>& optimizer_parameters) const {
  std::vector<std::size_t> places;
  if (optimizer_parameters.empty()) {
    places.resize(watched_.size());
    std::iota(places.begin(), places.end(), std::size_t{0});
    return places;
  }
  for (const at::Tensor& parameter : optimizer_parameters) {
    const auto place = places_.find(parameter.unsafeGetTensorImpl());
    if (place != places_.end()) places.push_back(place->second);
  }
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
  return places;
}

void WeightProbe::read_gradient(std::size_t parameter) noexcept {
  const Watched& watched = watched_[parameter];
  Reading& reading = gradients_[parameter];
  fuse_.guard(watched.name, [&] {
    const at::Tensor& gradient = watched.tensor.grad();
    reading.present = false;
    if (gradient.defined()) reading.take(gradient, eps_, watched.name, fuse_);
  });
}

void WeightProbe::read_origin(std::size_t parameter) noexcept {
  if (origins_[parameter].present) return;
  origins_[parameter].take(watched_[parameter].tensor, eps_, watched_[parameter].name, fuse_);
}

void WeightProbe::read_updated(std::size_t parameter) noexcept {
  updates_[parameter].take(watched_[parameter].tensor, eps_, watched_[parameter].name, fuse_);
}

}  // namespace gradmon
