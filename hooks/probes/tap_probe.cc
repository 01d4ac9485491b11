// SPDX-License-Identifier: Apache-2.0
#include "hooks/probes/tap_probe.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <torch/version.h>

#include <cstdint>
#include <cstring>
#include <optional>

namespace gradmon {
namespace {

using Type = at::ScalarType;
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 3)
constexpr std::array<Type, 7> kNewer = {Type::UInt16,         Type::UInt32,          Type::UInt64,
                                        Type::Float8_e4m3fn,  Type::Float8_e4m3fnuz, Type::Float8_e5m2,
                                        Type::Float8_e5m2fnuz};
#else
constexpr Type kNone = Type::Undefined;  // this torch has no such type
constexpr std::array<Type, 7> kNewer = {kNone, kNone, kNone, kNone, kNone, kNone, kNone};
#endif
// By ElementType.
constexpr std::array<Type, kElementTypes.size()> kTorchTypes = {
    Type::Bool,          Type::Char,  Type::Short,  Type::Int,         Type::Long,
    Type::Byte,          kNewer[0],   kNewer[1],    kNewer[2],         Type::Half,
    Type::BFloat16,      Type::Float, Type::Double, Type::ComplexHalf, Type::ComplexFloat,
    Type::ComplexDouble, kNewer[3],   kNewer[4],    kNewer[5],         kNewer[6]};

// The array with every stride positive or 0, from its lowest element on.
struct Upward {
  const unsigned char* lowest = nullptr;
  std::vector<std::int64_t> strides;  // in bytes
};

Upward upward(const ForeignArray& array) {
  Upward found{static_cast<const unsigned char*>(array.data), array.strides};
  for (std::size_t i = 0; i < array.sizes.size(); ++i) {
    if (found.strides[i] >= 0) continue;
    found.lowest += (array.sizes[i] - 1) * found.strides[i];
    found.strides[i] = -found.strides[i];
  }
  return found;
}

// The strides in elements; empty if the strides or the address are not multiples of the element's size.
std::optional<std::vector<std::int64_t>> element_strides(const Upward& array, std::size_t item) {
  if (reinterpret_cast<std::uintptr_t>(array.lowest) % item != 0) return std::nullopt;
  std::vector<std::int64_t> strides;
  for (const std::int64_t stride : array.strides) {
    if (stride % static_cast<std::int64_t>(item) != 0) return std::nullopt;
    strides.push_back(stride / static_cast<std::int64_t>(item));
  }
  return strides;
}

// Copies the elements one by one into a contiguous tensor; elements that a stride of 0 repeats only once.
at::Tensor gathered(const Upward& array, const std::vector<std::int64_t>& sizes, Type type,
                    std::size_t item) {
  std::vector<std::int64_t> once = sizes;
  for (std::size_t i = 0; i < once.size(); ++i) {
    if (array.strides[i] == 0) once[i] = 1;
  }
  at::Tensor copy = at::empty(once, type);
  auto* to = static_cast<unsigned char*>(copy.data_ptr());
  std::vector<std::int64_t> index(once.size(), 0);
  for (std::int64_t left = copy.numel(); left > 0; --left) {
    const unsigned char* from = array.lowest;
    for (std::size_t i = 0; i < index.size(); ++i) from += index[i] * array.strides[i];
    std::memcpy(to, from, item);
    to += item;
    for (std::size_t i = index.size(); i-- > 0;) {
      if (++index[i] < once[i]) break;
      index[i] = 0;
    }
  }
  return copy.expand(sizes);
}

constexpr std::uint64_t kAfterTheModels = std::uint64_t{1} << 32U;  // sequence of the first row

std::array<bool, kKinds> kinds_of(const HookSettings& settings) {
  std::array<bool, kKinds> kinds{};
  const auto set = [&](Kind kind, bool wanted) { kinds[static_cast<std::size_t>(kind)] = wanted; };
  set(Kind::actv, settings.activations.forward);
  set(Kind::actv_grad, settings.activations.backward);
  set(Kind::grad_unreduced, settings.gradients);
  set(Kind::grad_reduced, settings.gradients);
  set(Kind::exp_avg, settings.moments);
  set(Kind::exp_avg_sq, settings.moments);
  set(Kind::param_origin, settings.weights);
  set(Kind::param_updated, settings.weights);
  return kinds;
}

}  // namespace

tl::expected<at::Tensor, std::string> tensor_of(const ForeignArray& array) {
  const Type type = kTorchTypes[static_cast<std::size_t>(array.type)];
  if (type == Type::Undefined)
    return tl::unexpected(std::string("torch " TORCH_VERSION " has no type ") + name_of(array.type));
  if (array.empty()) return at::empty(array.sizes, type);
  const std::size_t item = size_of(array.type);
  const Upward from = upward(array);
  const auto strides = element_strides(from, item);
  if (!strides) return gathered(from, array.sizes, type, item);
  // The statistics only read it.
  return at::from_blob(const_cast<unsigned char*>(from.lowest), array.sizes, *strides,
                       at::TensorOptions().dtype(type));
}

TapProbe::TapProbe(const HookSettings& settings, RecordStream& stream, HookFuse& fuse)
    : stream_(stream),
      fuse_(fuse),
      selection_(settings.selection),
      micro_steps_of_gradients_(settings.per_micro_batch),
      flight_(settings.flight),
      kinds_(kinds_of(settings)),
      options_(settings.eps, settings.sample) {}

void TapProbe::begin_step(Step step, Readers) {
  options_.step = step.value;
  places_.clear();
  keys_.clear();
  readings_.clear();
  left_out_.clear();
}

bool TapProbe::selects(const std::string& name) {
  if (const auto known = selected_.find(name); known != selected_.end()) return known->second;
  const bool selected = !match_targets(selection_, {{0, name}}).matched.empty();
  if (selected_.size() < kMostNames) selected_.emplace(name, selected);
  return selected;
}

void TapProbe::tap(const TappedValue& value) {
  if (!kinds_[static_cast<std::size_t>(value.kind)] || !selects(value.name)) return;
  if (selected_.count(value.name) == 0) {
    left_out_.emplace_back(value.kind, value.name);
    return;
  }
  const bool has_micro_steps = value.kind == Kind::actv || value.kind == Kind::actv_grad ||
                               (value.kind == Kind::grad_unreduced && micro_steps_of_gradients_);
  Key key{value.kind, value.name, has_micro_steps ? value.micro_step : 0};
  const auto [place, fresh] = places_.try_emplace(key, readings_.size());
  if (fresh) {
    keys_.push_back(std::move(key));
    readings_.emplace_back();
  }
  Reading& reading = readings_[place->second];
  if (!value.why.empty()) return reading.mark_not_applicable(value.why);
  const bool whole = flight_ && value.kind == Kind::grad_reduced;
  reading.read(value.tensor, whole ? options_.whole() : options_, value.name, fuse_);
  if (value.scope) reading.scope = value.scope;
  resolve_pending({&reading});
}

void TapProbe::write_rows(RowWriter& rows) {
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    const auto& [kind, name, micro_step] = keys_[i];
    rows.write({kind, stream_.target_id(0, name), kAfterTheModels + i, micro_step}, readings_[i], name);
  }
  for (const auto& [kind, name] : left_out_)
    rows.count_not_applicable(kind, std::nullopt, name,
                              "more than " + std::to_string(kMostNames) + " names were handed in");
}

}  // namespace gradmon
