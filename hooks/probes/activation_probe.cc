// SPDX-License-Identifier: Apache-2.0
#include "hooks/probes/activation_probe.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <exception>

#include "control/log.h"
#include "hooks/observe/collective_call.h"
#include "hooks/rows/target_match.h"
#include "hooks/rows/wrapper_tensor.h"
#include "hooks/stats/readable.h"

namespace gradmon {
namespace {

ActivationChoice choice_of(const ActivationSettings& settings, const ActivationTarget& target) {
  const bool all = !target.input && !target.output && !target.input_grad && !target.output_grad;
  const auto wanted = [&](const std::optional<TensorSelection>& one, bool direction) {
    return ActivationChoice::Wanted{direction && (all || one), one};
  };
  ActivationChoice choice;
  choice.sides = {wanted(target.input, settings.forward), wanted(target.output, settings.forward),
                  wanted(target.input_grad, settings.backward),
                  wanted(target.output_grad, settings.backward)};
  return choice;
}

std::vector<bool> found_by_patterns(const TargetSelection& selection, const std::vector<TargetName>& names) {
  std::vector<bool> found(names.size(), false);
  if (selection.target_regex.empty()) return found;
  for (const std::size_t i : match_targets({{}, selection.target_regex, false}, names).matched)
    found[i] = true;
  return found;
}

std::string tuple_text(std::size_t size, std::size_t index) {
  return "tuple[" + std::to_string(size) + "]:" + std::to_string(index);
}

// Global, because torch's callback is a plain function.
std::atomic<std::uint64_t> calls_made{0};

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& function) {
  if (is_collective(function.name()) || is_symmetric_memory(function.name()))
    calls_made.fetch_add(1, std::memory_order_acq_rel);
  return nullptr;
}

SharedCallback& callback() {
  static auto* const only =
      new SharedCallback(at::RecordFunctionCallback(on_start).scopes({at::RecordScope::FUNCTION}));
  return *only;
}

constexpr const char* kRequiresNone = "its output requires no gradient";
constexpr const char* kNoneArrived = "its forward was seen, but no gradient arrived";

bool is_gradient(Side side) { return side == Side::input_grad || side == Side::output_grad; }
bool is_input(Side side) { return side == Side::input || side == Side::input_grad; }

bool comes_out(const GradientSource& input, const ForwardTensors& outputs) {
  return std::any_of(outputs.elements.begin(), outputs.elements.end(),
                     [&](const auto& output) { return GradientSource::of(output.tensor).is(input); });
}

}  // namespace

bool ActivationChoice::any() const {
  return std::any_of(sides.begin(), sides.end(), [](const Wanted& wanted) { return wanted.any; });
}

std::vector<ActivationChoice> activation_choices(const ActivationSettings& settings,
                                                 const TargetSelection& selection,
                                                 const std::vector<TargetName>& names) {
  const bool patterns = !selection.target_regex.empty();
  const bool invert = selection.invert && patterns;
  const bool all = settings.all && (!patterns || !settings.targets.empty());
  const std::vector<bool> found = found_by_patterns(selection, names);
  std::vector<ActivationChoice> choices(names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto target = std::find_if(settings.targets.begin(), settings.targets.end(),
                                     [&](const ActivationTarget& t) { return is_named(t.name, names[i]); });
    const bool named = target != settings.targets.end();
    const bool chosen =
        invert ? !found[i] && (named || all || settings.targets.empty()) : named || all || found[i];
    if (chosen) choices[i] = choice_of(settings, named ? *target : ActivationTarget{});
  }
  return choices;
}

ChosenElements chosen_elements(const ActivationChoice::Wanted& wanted, const ForwardTensors& tensors) {
  ChosenElements chosen;
  if (!wanted.any) return chosen;
  const auto size = wanted.one ? static_cast<std::size_t>(wanted.one->tuple_size) : 0;
  const auto index = wanted.one ? static_cast<std::size_t>(wanted.one->index) : 0;
  for (const ForwardTensors::Element& element : tensors.elements) {
    if (!wanted.one || element.place == index) chosen.elements.push_back(&element);
  }
  if (!wanted.one || tensors.places == std::max<std::size_t>(size, 1)) return chosen;
  chosen.mismatch = "config selects " + (size == 0 ? "\"tensor\"" : tuple_text(size, index)) +
                    ", but the module has " + std::to_string(tensors.places) +
                    (tensors.places == 1 ? " element" : " elements");
  return chosen;
}

std::string element_suffix(const ForwardTensors& tensors, const ForwardTensors::Element& element) {
  if (tensors.lone) return {};
  const bool by_number = element.key.find_first_not_of("0123456789") == std::string::npos;
  return tensors.places > 1 || !by_number ? "_" + element.key : std::string();
}

CollectiveCallCounter::CollectiveCallCounter() { callback().add_user(); }

CollectiveCallCounter::~CollectiveCallCounter() { callback().remove_user(); }

std::uint64_t CollectiveCallCounter::calls() const noexcept {
  return calls_made.load(std::memory_order_acquire);
}

void ReadingCache::begin_step(Step step) {
  options_.step = step.value;
  if (reuse_ == ReuseReadings::yes && !communication_) communication_.emplace();
  forget();
}

void ReadingCache::forget() {
  const std::lock_guard lock(mutex_);
  known_.clear();
}

std::optional<ReadingCache::Key> ReadingCache::key_of(const at::Tensor& tensor, int micro_step) const {
  if (reuse_ == ReuseReadings::no) return std::nullopt;
  if (tensor.layout() != at::kStrided || !tensor.has_storage() || tensor.is_inference()) return std::nullopt;
  if (!why_no_array(tensor).empty()) return std::nullopt;
  return Key{tensor.storage().unsafeGetStorageImpl(),
             tensor.storage_offset(),
             tensor.sizes().vec(),
             tensor.strides().vec(),
             static_cast<std::int8_t>(tensor.scalar_type()),
             tensor.is_conj(),
             tensor.is_neg(),
             version_of(tensor).value_or(0),
             micro_step};
}

Reading ReadingCache::read(const at::Tensor& tensor, int micro_step, const std::string& name,
                           HookFuse& fuse) {
  if (!is_wrapper(tensor)) return read_plain(tensor, micro_step, name, fuse);
  Unwrapped inner;
  try {
    inner = taken_apart(tensor);
  } catch (const std::exception& error) {
    inner.why = first_line(error.what());
  }
  if (inner.values) {
    Reading reading;
    reading.read(tensor, options_, name, fuse);
    return reading;
  }
  if (!inner.tensor.defined()) {
    Reading none;
    none.mark_not_applicable(std::move(inner.why));
    return none;
  }
  Reading reading = read_plain(inner.tensor, micro_step, name, fuse);
  reading.scope = std::move(inner.scope);
  return reading;
}

Reading ReadingCache::read_plain(const at::Tensor& tensor, int micro_step, const std::string& name,
                                 HookFuse& fuse) {
  const auto key = key_of(tensor, micro_step);
  const auto calls = [&] { return communication_ ? communication_->calls() : 0; };
  const std::uint64_t calls_before = calls();
  if (key) {
    const std::lock_guard lock(mutex_);
    if (std::exchange(calls_, calls_before) != calls_before) known_.clear();
    const auto found = known_.find(*key);
    if (found != known_.end()) {
      ++counts_.hits;
      Reading again = found->second.reading;
      again.read_at = reading_time();
      return again;
    }
  }
  Reading reading;
  reading.read(tensor, options_, name, fuse);
  const std::lock_guard lock(mutex_);
  ++counts_.read;
  if (!key || !reading.has_value || calls_before != calls()) return reading;
  known_.emplace(*key, Known{tensor.storage().getWeakStorageImpl(), reading});
  return reading;
}

ReadingCache::Counts ReadingCache::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

void ActivationRows::begin_step(Step step) {
  gate_.close();
  cache_.begin_step(step);
  take_rows();
  step_.store(gate_.open(), std::memory_order_release);
}

std::vector<ActivationRows::Row> ActivationRows::take_rows() {
  const std::lock_guard lock(mutex_);
  gradients_.clear();
  return std::exchange(rows_, {});
}

void ActivationRows::add(Row row, const at::Tensor& tensor, const ScopeText& scope) {
  if (is_full()) return;
  row.reading = cache_.read(tensor, row.micro_step, row.name, fuse_);
  if (scope) row.reading.scope = scope;
  keep(std::move(row));
}

bool ActivationRows::is_full() {
  const std::lock_guard lock(mutex_);
  return limit_.reached(rows_.size());
}

void ActivationRows::note_not_applicable(const Row& row, const std::string& why) {
  const std::lock_guard lock(mutex_);
  not_applicable_.emplace(std::pair(row.vpp_stage, row.name), why);
}

ActivationRows::Reasons ActivationRows::take_not_applicable() {
  const std::lock_guard lock(mutex_);
  return std::exchange(not_applicable_, {});
}

void ActivationRows::drop(int vpp_stage, int micro_step) {
  const std::lock_guard lock(mutex_);
  rows_.erase(std::remove_if(
                  rows_.begin(), rows_.end(),
                  [&](const Row& row) { return row.vpp_stage == vpp_stage && row.micro_step == micro_step; }),
              rows_.end());
  gradients_.clear();
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const Row& row = rows_[i];
    if (row.kind == Kind::actv_grad)
      gradients_.emplace(std::tuple(row.vpp_stage, row.name, row.micro_step), i);
  }
}

void ActivationRows::keep(Row row) {
  const std::lock_guard lock(mutex_);
  if (row.kind == Kind::actv_grad) {
    const auto [known, fresh] =
        gradients_.try_emplace({row.vpp_stage, row.name, row.micro_step}, rows_.size());
    if (!fresh) {
      rows_[known->second] = std::move(row);
      return;
    }
  }
  rows_.push_back(std::move(row));
}

ActivationProbe::ActivationProbe(const HookSettings& settings, const WatchedModel& model,
                                 RecordStream& stream, HookFuse& fuse)
    : settings_(settings.activations),
      selection_(settings.selection),
      stream_(stream),
      rows_(std::make_shared<ActivationRows>(ReadOptions(settings.eps, settings.sample),
                                             ReuseReadings(settings.reuse_readings), fuse)),
      unless_arrived_(model.modules.size()),
      gradients_(model) {
  const std::vector<TargetName> names = module_names(model.modules);
  const auto shown = row_names(model, settings.squash_name);
  const std::vector<std::string>& recorded = shown->modules;
  auto choices = activation_choices(settings_, selection_, names);
  for (std::size_t i = 0; i < names.size(); ++i)
    targets_.push_back({recorded[i], names[i].vpp_stage, std::move(choices[i])});
  for (const WatchedModule& module : model.modules)
    if (module.scope) plain_scope_ = module.scope;
}

ActivationProbe::~ActivationProbe() { disarm(); }

void ActivationProbe::begin_step(Step step, Readers) {
  calls_.clear();
  gradients_.begin_step();
  rows_->begin_step(step);
}

void ActivationProbe::disarm() noexcept {
  rows_->end_step();
  gradients_.end_step();
}

void ActivationProbe::write_rows(RowWriter& rows) {
  std::uint64_t sequence = 0;
  for (ActivationRows::Row& row : rows_->take_rows()) {
    if (row.kind == Kind::actv_grad && row.module != kNoModule) unless_arrived_[row.module] = nullptr;
    const RowKey key{row.kind, stream_.target_id(row.vpp_stage, row.name), sequence++, row.micro_step};
    if (!row.reading.scope) row.reading.scope = plain_scope_;
    rows.write(key, row.reading, row.name);
  }
  for (std::size_t i = 0; i < targets_.size(); ++i) {
    const char* const why = unless_arrived_[i].exchange(nullptr);
    if (why)
      rows.note_reason(Kind::actv_grad, stream_.target_id(targets_[i].vpp_stage, targets_[i].name), why);
  }
  for (const auto& [row, why] : rows_->take_not_applicable())
    rows.count_not_applicable(Kind::actv_grad, stream_.target_id(row.first, row.second), row.second, why);
  for (std::uint64_t late = rows_->take_late(); late > 0; --late)
    rows.count_not_applicable(Kind::actv_grad, std::nullopt, "actv_grad",
                              "a gradient arrived after its step had ended");
}

void ActivationProbe::before_forward(const ForwardVisit& visit, const ForwardTensors& inputs) {
  const Target& target = targets_[visit.module];
  if (!target.choice.any()) return;
  read(target, visit, Side::input, inputs);
  if (!settings_.backward || visit.in_graph || !c10::GradMode::is_enabled()) return;
  calls_.begin(visit, note_inputs(target, visit, inputs));
}

void ActivationProbe::after_forward(const ForwardVisit& visit, const ForwardTensors& outputs) {
  const Target& target = targets_[visit.module];
  if (!target.choice.any()) return;
  read(target, visit, Side::output, outputs);
  auto call = calls_.end(visit);
  const bool has_gradient = requires_gradient(outputs);
  if (settings_.backward) unless_arrived_[visit.module] = has_gradient ? kNoneArrived : kRequiresNone;
  if (!call || !has_gradient) return;
  watch_inputs(std::move(*call), outputs);
  watch_outputs(target, visit, outputs);
}

void ActivationProbe::abandoned(const ForwardVisit& visit) { rows_->drop(visit.vpp_stage, visit.micro_step); }

void ActivationProbe::tapped(const ForwardVisit& within, std::string_view name, const at::Tensor& tensor) {
  const Target& target = tapped_target(within.vpp_stage, name);
  if (!target.choice.any()) return;
  const ForwardTensors value{{{tensor, "", 0}}, 1, true};
  ForwardVisit visit = within;
  visit.module = kNoModule;
  read(target, visit, Side::output, value);
  rows_->forget_readings();
  if (settings_.backward && requires_gradient(value)) watch_outputs(target, visit, value);
}

void ActivationProbe::gradients_in_graph(const ForwardVisit& visit, GraphSide side,
                                         const ForwardTensors& gradients) {
  const Target& target = targets_[visit.module];
  const Side of = side == GraphSide::inputs ? Side::input_grad : Side::output_grad;
  for (const auto* element : chosen(target, of, gradients)) {
    rows_->forget_readings();
    rows_->add(row(target, visit, of, element_suffix(gradients, *element)), element->tensor);
  }
  rows_->forget_readings();
}

ActivationRows::Row ActivationProbe::row(const Target& target, const ForwardVisit& visit, Side side,
                                         const std::string& suffix) const {
  ActivationRows::Row row;
  row.kind = is_gradient(side) ? Kind::actv_grad : Kind::actv;
  row.vpp_stage = target.vpp_stage;
  row.name = target.name + (is_input(side) ? ".input" : ".output") + suffix;
  if (visit.call > 1) row.name += "@" + std::to_string(visit.call);
  row.micro_step = visit.micro_step;
  row.module = visit.module;
  return row;
}

std::vector<const ForwardTensors::Element*> ActivationProbe::chosen(const Target& target, Side side,
                                                                    const ForwardTensors& tensors) {
  ChosenElements chosen = chosen_elements(target.choice[side], tensors);
  if (!chosen.mismatch.empty()) {
    const std::lock_guard lock(mutex_);
    if (warned_.emplace(target.name, side).second) {
      log_warn(target.name + ": " + kSideNames[static_cast<std::size_t>(side)] + ": " + chosen.mismatch);
    }
  }
  return std::move(chosen.elements);
}

void ActivationProbe::read(const Target& target, const ForwardVisit& visit, Side side,
                           const ForwardTensors& tensors) {
  if (visit.recomputed) return;
  for (const auto* element : chosen(target, side, tensors)) {
    if (visit.in_graph) rows_->forget_readings();
    rows_->add(row(target, visit, side, element_suffix(tensors, *element)), element->tensor);
  }
  if (visit.in_graph) rows_->forget_readings();
}

ActivationProbe::Call ActivationProbe::note_inputs(const Target& target, const ForwardVisit& visit,
                                                   const ForwardTensors& inputs) {
  Call call;
  for (const auto* element : chosen(target, Side::input_grad, inputs)) {
    GradientSource source = gradients_.source_of(element->tensor);
    if (source.kind == GradientSource::Kind::none || source.kind == GradientSource::Kind::parameter) continue;
    call.rows.push_back(row(target, visit, Side::input_grad, element_suffix(inputs, *element)));
    call.sources.push_back(std::move(source));
  }
  call.first_node = next_node();
  return call;
}

void ActivationProbe::watch_inputs(Call call, const ForwardTensors& outputs) {
  auto edges = inner_edges(call.sources, outputs, call.first_node);
  for (std::size_t i = 0; i < call.sources.size(); ++i) {
    const auto same = [&](const GradientSource& other) { return other.is(call.sources[i]); };
    if (std::count_if(call.sources.begin(), call.sources.end(), same) > 1) {
      rows_->note_not_applicable(call.rows[i], "the module receives this tensor twice");
    } else if (comes_out(call.sources[i], outputs)) {
      rows_->note_not_applicable(call.rows[i], "the module returns this input unchanged");
    } else {
      auto cannot_add = edges[i].size() > 1 ? on_failure(call.rows[i]) : nullptr;
      gradients_.watch_edges(call.sources[i], std::move(edges[i]), body(std::move(call.rows[i])),
                             std::move(cannot_add));
    }
  }
}

void ActivationProbe::watch_outputs(const Target& target, const ForwardVisit& visit,
                                    const ForwardTensors& outputs) {
  for (const auto* element : chosen(target, Side::output_grad, outputs)) {
    auto of_gradient = row(target, visit, Side::output_grad, element_suffix(outputs, *element));
    gradients_.watch(gradients_.source_of(element->tensor), body(std::move(of_gradient)));
  }
}

TensorGradients::Body ActivationProbe::body(ActivationRows::Row row) const {
  return [rows = std::weak_ptr<ActivationRows>(rows_), step = rows_->step(), row = std::move(row)](
             const at::Tensor& gradient, const ScopeText& scope) {
    if (const auto alive = rows.lock())
      alive->enter(step, row.name, [&] { alive->add(row, gradient, scope); });
  };
}

TensorGradients::OnFailure ActivationProbe::on_failure(const ActivationRows::Row& row) const {
  return [rows = std::weak_ptr<ActivationRows>(rows_), step = rows_->step(), row](const std::string& why) {
    if (const auto alive = rows.lock())
      alive->enter(step, row.name, [&] {
        alive->note_not_applicable(row, "the gradients of the input cannot be added: " + why);
      });
  };
}

const ActivationProbe::Target& ActivationProbe::tapped_target(int vpp_stage, std::string_view name) {
  static const Target none;
  const std::lock_guard lock(mutex_);
  std::pair key(vpp_stage, std::string(name));
  if (const auto known = tapped_.find(key); known != tapped_.end()) return known->second;
  if (tapped_.size() >= kMostTappedNames) {
    if (!std::exchange(told_of_names_, true))
      log_warn("observe(): more than " + std::to_string(kMostTappedNames) + " names; those after " +
               first_line(key.second) + " have no rows");
    return none;
  }
  const TargetName as_target{vpp_stage, key.second};
  const auto choice = activation_choices(settings_, selection_, {as_target}).front();
  return tapped_.emplace(std::move(key), Target{as_target.name, vpp_stage, choice}).first->second;
}

}  // namespace gradmon
