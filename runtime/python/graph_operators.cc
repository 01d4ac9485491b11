// SPDX-License-Identifier: Apache-2.0
// The operators that report the calls of modules within graphs of torch.compile (python_objects.h).
#include <c10/core/GradMode.h>
#include <torch/library.h>

#include <atomic>
#include <charconv>
#include <map>
#include <mutex>
#include <string_view>
#include <vector>

#include "hooks/observe/forward_listener.h"
#include "runtime/python/python_objects.h"

namespace gradmon {
namespace {

// The modules that have a number in this process. The numbers count from 1.
struct NumberedModules {
  std::mutex mutex;
  // Guarded by mutex.
  std::map<const void*, std::int64_t> numbers;
  std::vector<const void*> modules{nullptr};
  std::vector<bool> entered{false};  // since the last take_entered_modules()
};

NumberedModules& numbered() {
  static auto* const the_modules = new NumberedModules;  // Never destroyed: threads may outlive main().
  return *the_modules;
}

// nullptr: the graph belongs to another process.
const void* numbered_module(const at::Tensor& number) {
  const auto index = static_cast<std::size_t>(number.item<std::int64_t>());
  const std::lock_guard lock(numbered().mutex);
  return index < numbered().modules.size() ? numbered().modules[index] : nullptr;
}

void note_entered(const at::Tensor& number) {
  const auto index = static_cast<std::size_t>(number.item<std::int64_t>());
  const std::lock_guard lock(numbered().mutex);
  if (index < numbered().entered.size()) numbered().entered[index] = true;
}

std::size_t number_in(std::string_view text) {
  std::size_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

std::string unescaped(std::string_view key) {
  std::string plain;
  for (std::size_t i = 0; i < key.size(); ++i) {
    const bool escape = key[i] == '%' && i + 2 < key.size();
    plain += escape ? (key[i + 2] == 'B' ? ';' : '%') : key[i];
    if (escape) i += 2;
  }
  return plain;
}

// The elements that a layout describes, without their tensors.
ForwardTensors laid_out(std::string_view layout) {
  ForwardTensors found;
  found.lone = layout == "lone";
  if (found.lone) {
    found.places = 1;
    found.elements.push_back({at::Tensor(), "", 0});
    return found;
  }
  const std::size_t first = layout.find(';');
  found.places = number_in(layout.substr(0, first));
  for (std::size_t at = first; at != std::string_view::npos;) {
    const std::size_t end = layout.find(';', at + 1);
    const std::string_view part = layout.substr(at + 1, end == std::string_view::npos ? end : end - at - 1);
    const std::size_t equals = part.find('=');
    found.elements.push_back(
        {at::Tensor(), unescaped(part.substr(equals + 1)), number_in(part.substr(0, equals))});
    at = end;
  }
  return found;
}

ForwardTensors with_layout(const at::TensorList& tensors, std::string_view layout) {
  ForwardTensors found = laid_out(layout);
  for (std::size_t i = 0; i < found.elements.size() && i < tensors.size(); ++i)
    found.elements[i].tensor = tensors[i];
  return found;
}

at::Tensor number_call(const at::Tensor& /*x*/, const at::Tensor& module, std::int64_t position) {
  GraphCall number = kUnknownCall;
  if (forward_entry::open()) number = forward_entry::call_in_graph({numbered_module(module), position});
  return at::scalar_tensor(number, at::TensorOptions().dtype(at::kLong).device(at::kCPU));
}

void report_entered(const at::TensorList inputs, const at::Tensor& module, const at::Tensor& call,
                    const std::string& layout, bool gradients, bool training) {
  note_entered(module);
  if (!forward_entry::open()) return;
  const c10::AutoGradMode as_traced(gradients);
  forward_entry::entered_in_graph(numbered_module(module),
                                  training ? ModuleMode::training : ModuleMode::evaluation,
                                  with_layout(inputs, layout), call.item<std::int64_t>());
}

void report_left(const at::TensorList outputs, const at::Tensor& module, const at::Tensor& call,
                 const std::string& layout, bool gradients) {
  if (!forward_entry::open()) return;
  const c10::AutoGradMode as_traced(gradients);
  forward_entry::left_in_graph(numbered_module(module), with_layout(outputs, layout),
                               call.item<std::int64_t>());
}

void report_gradient(const at::Tensor& x, const at::Tensor& call, const std::string& layout,
                     std::int64_t index, bool of_output) {
  if (!forward_entry::open()) return;
  ForwardTensors gradients = laid_out(layout);
  const auto i = static_cast<std::size_t>(index);
  if (i >= gradients.elements.size()) return;
  gradients.elements[i].tensor = x;
  gradients.elements = {std::move(gradients.elements[i])};
  forward_entry::gradients_in_graph(call.item<std::int64_t>(),
                                    of_output ? GraphSide::outputs : GraphSide::inputs, gradients);
}

}  // namespace

std::int64_t graph_module_number(const void* module) {
  NumberedModules& known = numbered();
  const std::lock_guard lock(known.mutex);
  const auto [entry, added] = known.numbers.emplace(module, static_cast<std::int64_t>(known.modules.size()));
  if (added) {
    known.modules.push_back(module);
    known.entered.push_back(false);
  }
  return entry->second;
}

std::vector<std::int64_t> take_entered_modules() {
  NumberedModules& known = numbered();
  const std::lock_guard lock(known.mutex);
  std::vector<std::int64_t> taken;
  for (std::size_t i = 0; i < known.entered.size(); ++i) {
    if (known.entered[i]) taken.push_back(static_cast<std::int64_t>(i));
    known.entered[i] = false;
  }
  return taken;
}

}  // namespace gradmon

TORCH_LIBRARY_FRAGMENT(gradmon, m) {
  m.def("call(Tensor x, Tensor module, int position) -> Tensor");
  m.def(
      "entered(Tensor[] inputs, Tensor module, Tensor call, str layout, bool gradients, bool training) -> "
      "()");
  m.def("left(Tensor[] outputs, Tensor module, Tensor call, str layout, bool gradients) -> ()");
  m.def("gradient(Tensor x, Tensor call, str layout, int index, bool of_output) -> ()");
}
TORCH_LIBRARY_IMPL(gradmon, CompositeExplicitAutograd, m) {
  m.impl("call", gradmon::number_call);
  m.impl("entered", gradmon::report_entered);
  m.impl("left", gradmon::report_left);
  m.impl("gradient", gradmon::report_gradient);
}
TORCH_LIBRARY_IMPL(gradmon, Autograd, m) {
  for (const char* name : {"call", "entered", "left", "gradient"})
    m.impl(name, torch::CppFunction::makeFallthrough());
}
