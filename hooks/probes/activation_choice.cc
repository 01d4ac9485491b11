// SPDX-License-Identifier: Apache-2.0
#include "hooks/probes/activation_choice.h"

#include <algorithm>

#include "hooks/rows/target_match.h"

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

}  // namespace gradmon
