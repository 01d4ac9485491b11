// SPDX-License-Identifier: Apache-2.0
#include "runtime/python/python_objects.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/library.h>

#include <map>
#include <mutex>
#include <vector>

#include "control/log.h"
#include "gradmon/forward_entry.h"

namespace gradmon {
namespace {

// The names of all numbers requested in this process.
struct Names {
  std::mutex mutex;
  std::map<std::int64_t, std::string> by_number;  // guarded by mutex
};

Names& known_names() {
  static auto* const the_names = new Names;  // Never destroyed: threads may outlive main().
  return *the_names;
}

// FNV-1a, without the sign and with the lowest bit free.
std::int64_t hash_of(const std::string& name) {
  std::uint64_t hash = 14695981039346656037U;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  return static_cast<std::int64_t>(hash >> 2U << 1U);
}

// A number without a name belongs to a graph that another process has traced.
void tap(const at::Tensor& x, const at::Tensor& /*token*/, std::int64_t number) {
  if (!forward_entry::open()) return;
  std::string name;
  {
    const std::lock_guard lock(known_names().mutex);
    const auto found = known_names().by_number.find(number);
    if (found == known_names().by_number.end()) return;
    name = found->second;
  }
  const c10::AutoGradMode as_traced((number & 1) != 0);
  forward_entry::tapped(name, x);
}

void tap_nothing(const at::Tensor& /*x*/, const at::Tensor& /*token*/, std::int64_t /*number*/) {}

// True if torch.vmap or torch.func transforms the computation of x: x then represents another tensor.
bool is_transformed(const at::Tensor& x) {
  return x.key_set().has_any(
      c10::DispatchKeySet({c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper}));
}

void tell_of_transforms() {
  static std::once_flag told;
  std::call_once(told, [] { log_warn("observe(): no rows within torch.vmap and transforms of torch.func"); });
}

// Without it, a graph with the operator within torch.vmap would fail.
void tap_batch(const at::Tensor& /*x*/, const at::Tensor& /*token*/, std::int64_t /*number*/) {
  tell_of_transforms();
}

// A compiler that makes CUDA graphs then calls it outside the graphs. Older versions of torch lack the tag.
template <typename Tag>
auto tags_of_tap(int) -> decltype(std::vector<Tag>{Tag::cudagraph_unsafe}) {
  return {Tag::cudagraph_unsafe};
}
template <typename Tag>
std::vector<Tag> tags_of_tap(long) {
  return {};
}

}  // namespace

std::int64_t observation_number(const std::string& name, GradientMode gradients) {
  const std::int64_t number = hash_of(name) | (gradients == GradientMode::enabled ? 1 : 0);
  const std::lock_guard lock(known_names().mutex);
  known_names().by_number.emplace(number, name);
  return number;
}

void observe_now(const at::Tensor& x, const std::string& name) {
  if (!forward_entry::open()) return;
  if (is_transformed(x)) return tell_of_transforms();
  const pybind11::gil_scoped_release others_run;
  forward_entry::tapped(name, x);
}

}  // namespace gradmon

TORCH_LIBRARY_FRAGMENT(gradmon, m) {
  const std::vector<at::Tag> tags = gradmon::tags_of_tap<at::Tag>(0);
  m.def("tap(Tensor x, Tensor(a!) token, int number) -> ()", tags);
}
TORCH_LIBRARY_IMPL(gradmon, CompositeExplicitAutograd, m) { m.impl("tap", gradmon::tap); }
TORCH_LIBRARY_IMPL(gradmon, Meta, m) { m.impl("tap", gradmon::tap_nothing); }
TORCH_LIBRARY_IMPL(gradmon, FuncTorchBatched, m) { m.impl("tap", gradmon::tap_batch); }
TORCH_LIBRARY_IMPL(gradmon, Autograd, m) { m.impl("tap", torch::CppFunction::makeFallthrough()); }
