// SPDX-License-Identifier: Apache-2.0
// The tensors of each module that a plan selects.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hooks/observe/forward_listener.h"
#include "hooks/rows/hook_settings.h"
#include "hooks/rows/target_names.h"

namespace gradmon {

enum class Side : std::uint8_t { input, output, input_grad, output_grad };
inline constexpr std::array<const char*, 4> kSideNames = {"input", "output", "input_grad", "output_grad"};

// The selection for one module, by Side. A value.
struct ActivationChoice {
  struct Wanted {
    bool any = false;
    std::optional<TensorSelection> one;  // not set: all tensors of this side
  };
  std::array<Wanted, 4> sides;

  const Wanted& operator[](Side side) const { return sides[static_cast<std::size_t>(side)]; }
  bool any() const;
};

// Returns one choice for each name. A module that `settings.targets` names (the module itself, not one
// around it) has the selection of that target. Any other module has all its tensors if `settings.all` is
// set or a pattern of `selection` matches it. If there are patterns but no targets, `settings.all` is
// ignored. With `invert`, a module that a pattern matches has nothing; the others are chosen by targets
// and `settings.all`, or all of them if there are no targets.
std::vector<ActivationChoice> activation_choices(const ActivationSettings& settings,
                                                 const TargetSelection& selection,
                                                 const std::vector<TargetName>& names);

// The selected elements of a container. If element i of N is selected and the container has another size,
// `mismatch` says so; element i is still chosen if it exists.
struct ChosenElements {
  std::vector<const ForwardTensors::Element*> elements;
  std::string mismatch;  // a message; empty: the size fits
};
ChosenElements chosen_elements(const ActivationChoice::Wanted& wanted, const ForwardTensors& tensors);

// The end of a row's name, after `.input` or `.output`: `_{key}`; empty for a lone tensor and for the only
// element of a tuple.
std::string element_suffix(const ForwardTensors& tensors, const ForwardTensors::Element& element);

}  // namespace gradmon
