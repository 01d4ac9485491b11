// SPDX-License-Identifier: Apache-2.0
#include "hooks/probes/module_structure.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "control/log.h"
#include "hooks/rows/target_match.h"
#include "hooks/rows/target_names.h"
#include "hooks/stats/tensor_stats.h"

namespace gradmon {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kNone = "<class 'NoneType'>";

// The text that Python prints for a torch.Size and a dtype.
std::string text_of(const at::Tensor& tensor) {
  if (tensor.is_nested()) return std::string("nested, dtype=") + name_of(dtype_of(tensor));
  if (tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides())
    return std::string("size unknown, dtype=") + name_of(dtype_of(tensor));
  std::string text = "size=(";
  for (std::int64_t i = 0; i < tensor.dim(); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(tensor.size(i));
  return text + (tensor.dim() == 1 ? ",), dtype=" : "), dtype=") + name_of(dtype_of(tensor));
}

Json tuple_of(std::size_t places) { return {{"config", "tuple[" + std::to_string(places) + "]"}}; }

Json json_of(const ForwardTensors& tensors) {
  if (tensors.lone) return {{"config", "tensor"}, {"tensor", text_of(tensors.elements.front().tensor)}};
  Json json = tuple_of(tensors.places);
  for (const auto& element : tensors.elements) json[element.key] = text_of(element.tensor);
  return json;
}

// Placeholders, until the gradients arrive.
Json gradients_of(const ForwardTensors& tensors) {
  Json json = tuple_of(tensors.places);
  for (const auto& element : tensors.elements) json[tensors.lone ? "0" : element.key] = kNone;
  return json;
}

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

std::vector<std::string> lines_of(const std::string& path) {
  std::vector<std::string> lines;
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none)) return lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(std::move(line));
  return lines;
}

// The lines of the program's source files. Each file is read once. One thread.
class SourceLines {
 public:
  // The line (from 1) without leading and trailing white space; "" if the file or the line does not exist.
  std::string line(const std::string& path, std::int64_t number) {
    auto file = files_.find(path);
    if (file == files_.end()) file = files_.emplace(path, lines_of(path)).first;
    if (number < 1 || static_cast<std::size_t>(number) > file->second.size()) return {};
    const std::string& line = file->second[static_cast<std::size_t>(number - 1)];
    const std::size_t begin = line.find_first_not_of(" \t\r\f");
    return begin == std::string::npos ? "" : line.substr(begin, line.find_last_not_of(" \t\r\f") + 1 - begin);
  }

 private:
  std::map<std::string, std::vector<std::string>> files_;
};

std::string text_of(const std::vector<StackFrame>& frames, SourceLines& lines) {
  std::string text;
  for (const StackFrame& frame : frames) {
    const std::string code = frame.code.empty() ? lines.line(frame.path, frame.line) : frame.code;
    text += "File " + frame.path + ", line " + std::to_string(frame.line) + ", in " + frame.function +
            ", \n " + code + " \n";
  }
  return text;
}

}  // namespace

// The tensors and stacks seen in the step. Any thread.
class ModuleStructure::Seen {
 public:
  Seen(std::size_t modules, HookFuse& fuse) : modules_(modules), fuse_(fuse) {}

  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
  }
  void close() noexcept {
    const std::lock_guard lock(mutex_);
    open_ = false;
  }

  // False if the module was entered before.
  bool enter(std::size_t module, const ForwardTensors& inputs) {
    const std::lock_guard lock(mutex_);
    Module& entry = modules_[module];
    if (!entry.input.is_null()) return false;
    entry.input = json_of(inputs);
    entry.input_grad = gradients_of(inputs);
    return true;
  }

  void leave(std::size_t module, const ForwardTensors& outputs) {
    const std::lock_guard lock(mutex_);
    Module& entry = modules_[module];
    if (!entry.output.is_null()) return;
    entry.output = json_of(outputs);
    entry.output_grad = gradients_of(outputs);
  }

  void add_stack(std::size_t module, std::vector<StackFrame> stack) {
    const std::lock_guard lock(mutex_);
    stacks_.emplace_back(module, std::move(stack));
  }

  void note_gradient(std::size_t module, bool of_output, const std::string& key,
                     const at::Tensor& tensor) noexcept {
    const std::lock_guard lock(mutex_);
    if (!open_) return;
    fuse_.guard("", [&] {
      Module& entry = modules_[module];
      Json& known = (of_output ? entry.output_grad : entry.input_grad)[key];
      if (known.is_null() || known == kNone) known = text_of(tensor);
      entry.took_part = entry.took_part || of_output;
    });
  }

  std::string structure(const std::vector<std::string>& names) const {
    const std::lock_guard lock(mutex_);
    Json all = Json::object();
    for (std::size_t i = 0; i < names.size(); ++i) {
      Json& json = all[names[i]] = Json::object();
      const Module& entry = modules_[i];
      if (!entry.input.is_null()) json["input"] = entry.input;
      if (!entry.output.is_null()) json["output"] = entry.output;
      if (entry.took_part) json["input_grad"] = entry.input_grad;
      if (entry.took_part) json["output_grad"] = entry.output_grad;
    }
    return all.dump(4, ' ', false, Json::error_handler_t::replace) + "\n";
  }

  std::string stacks(const std::vector<std::string>& names) const {
    const std::lock_guard lock(mutex_);
    std::string csv = "module_name,stack_info\n";
    SourceLines lines;
    for (const auto& [module, stack] : stacks_)
      csv += csv_cell(names[module]) + "," + csv_cell(text_of(stack, lines)) + "\n";
    return csv;
  }

  bool anything() const {
    const std::lock_guard lock(mutex_);
    return std::any_of(modules_.begin(), modules_.end(), [](const Module& m) { return !m.input.is_null(); });
  }

 private:
  struct Module {
    Json input, output, input_grad, output_grad;  // null: not seen
    bool took_part = false;                       // a gradient of the output has arrived
  };

  mutable std::mutex mutex_;
  // Guarded by mutex_. fuse_ is used only while open, because it may be destroyed later.
  bool open_ = false;
  std::vector<Module> modules_;
  std::vector<std::pair<std::size_t, std::vector<StackFrame>>> stacks_;
  HookFuse& fuse_;
};

ModuleStructure::ModuleStructure(const HookSettings& settings, const WatchedModel& model,
                                 RecordStream& stream, HookFuse& fuse, StackSource stack)
    : settings_(settings),
      stream_(stream),
      stack_(std::move(stack)),
      indices_(module_indices(model.modules)),
      selected_(model.modules.size(), false),
      seen_(std::make_shared<Seen>(model.modules.size(), fuse)),
      gradients_(model) {
  const std::vector<TargetName> names = module_names(model.modules);
  const auto shown = row_names(model, settings.squash_name);
  const std::vector<std::string>& recorded = shown->modules;
  for (std::size_t i = 0; i < names.size(); ++i) {
    names_.push_back(std::to_string(names[i].vpp_stage) + ":" + recorded[i]);
    full_names_.push_back(names[i].name);
  }
  for (const std::size_t i : match_targets(settings.selection, names).matched) selected_[i] = true;
}

ModuleStructure::~ModuleStructure() { disarm(); }

void ModuleStructure::begin_step(Step, Readers) {
  calls_.clear();
  gradients_.begin_step();
  if (!done_) seen_->open();
}

void ModuleStructure::disarm() noexcept {
  seen_->close();
  gradients_.end_step();
}

void ModuleStructure::write_rows(RowWriter&) {
  if (std::exchange(done_, true)) return;
  if (!seen_->anything()) {
    log_warn(
        "print_struct, stack_info: no module forward was observed; C++ programs must call gradmon::observe() "
        "(gradmon/observe.h)");
  }
  if (settings_.module_structure)
    stream_.publish(RecordStream::Document::module_struct, seen_->structure(names_));
  if (settings_.call_stacks) stream_.publish(RecordStream::Document::stack_info, seen_->stacks(names_));
}

void ModuleStructure::before_forward(const ForwardVisit& visit, const ForwardTensors& inputs) {
  if (done_) return;
  const bool first = seen_->enter(visit.module, inputs);
  if (first && settings_.call_stacks && selected_[visit.module]) seen_->add_stack(visit.module, stack_here());
  if (!c10::GradMode::is_enabled() || !(first || visit.recomputed)) return;
  std::vector<Input> sources;
  for (const auto& element : inputs.elements)
    sources.push_back({element.key, gradients_.source_of(element.tensor)});
  calls_.begin(visit, std::move(sources));
}

void ModuleStructure::after_forward(const ForwardVisit& visit, const ForwardTensors& outputs) {
  if (done_) return;
  seen_->leave(visit.module, outputs);
  const auto inputs = calls_.end(visit);
  if (!inputs || !requires_gradient(outputs)) return;
  const auto body = [&](bool of_output, const std::string& key) {
    return [weak = std::weak_ptr<Seen>(seen_), module = visit.module, of_output, key](
               const at::Tensor& gradient, const ScopeText&) {
      if (const auto seen = weak.lock()) seen->note_gradient(module, of_output, key, gradient);
    };
  };
  for (const Input& input : *inputs) gradients_.watch(input.source, body(false, input.key));
  for (const auto& element : outputs.elements) {
    gradients_.watch(gradients_.source_of(element.tensor), body(true, outputs.lone ? "0" : element.key));
  }
}

std::vector<StackFrame> ModuleStructure::stack_here() const {
  std::vector<StackFrame> frames = stack_ ? stack_().frames : std::vector<StackFrame>();
  if (!frames.empty()) return frames;
  const std::vector<std::size_t> around = modules_around(indices_);
  for (std::size_t i = 1; i < around.size(); ++i) {
    const std::string& name = full_names_[around[i]];
    frames.push_back({"@native", 0, name.empty() ? "the model" : name, "forward"});
  }
  return frames;
}

}  // namespace gradmon
