// SPDX-License-Identifier: Apache-2.0
// Which of a module's tensors a plan wants.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hooks/observe/forward_listener.h"
#include "hooks/rows/hook_settings.h"
#include "hooks/names/squash_name.h"

namespace gradmon {

enum class Side : std::uint8_t { input, output, input_grad, output_grad };
inline constexpr std::array<const char*, 4> kSideNames = {"input", "output", "input_grad", "output_grad"};

// Of one module, by Side. Values.
struct ActivationChoice {
  struct Wanted {
    bool any = false;
    std::optional<TensorSelection> one;  // none: all there are
  };
  std::array<Wanted, 4> sides;

  const Wanted& operator[](Side side) const { return sides[static_cast<std::size_t>(side)]; }
  bool any() const;
};

// For each name. A module that `targets` names itself (not one around it) has
// its own selection; other modules have all, where all are wanted or a pattern
// of `selection` finds them. `invert` takes away what the patterns find, of the
// modules named where some are.
std::vector<ActivationChoice> activation_choices(const ActivationSettings& settings,
                                                 const TargetSelection& selection,
                                                 const std::vector<TargetName>& names);

// The elements wanted of a container. A selection of element i of N takes
// element i where N is another, and none where there is no i: `mismatch` says so.
struct ChosenElements {
  std::vector<const ForwardTensors::Element*> elements;
  std::string mismatch;  // empty: none
};
ChosenElements chosen_elements(const ActivationChoice::Wanted& wanted, const ForwardTensors& tensors);

// What a name has after `.input` or `.output`: nothing for a lone tensor or the
// only element of a tuple, else `_{key}`.
std::string element_suffix(const ForwardTensors& tensors, const ForwardTensors::Element& element);

}  // namespace gradmon
