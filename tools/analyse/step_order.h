// SPDX-License-Identifier: Apache-2.0
// The time at which a row was computed, relative to other rows of the job. Pure.
#pragma once

#include <cstdint>

#include "control/vocabulary.h"
#include "tools/analyse/rows/row.h"

namespace gradmon {

// A part of a training step, in the order of computation. Weights and moments at the begin of a step were
// computed in the step before, so they come first.
enum class Phase : std::uint8_t { state, forward, backward, reduction, update, scalars };

Phase phase_of(Kind kind, const Row& row);
// "in the forward pass"
const char* text_of(Phase phase);

// Orders rows by step; in a step: state, then for each micro step forward and backward, then the rest.
// Within a phase: model chunks (rising, in the backward pass falling), kind, place among the rows of the step
// in the file, rank; collective calls before reduced gradients.
struct StepOrder {
  std::int64_t step = 0;
  std::uint8_t part = 0;
  std::int32_t micro_step = 0;
  Phase phase = Phase::state;
  std::uint8_t file = 0;  // the place of the kind within the phase
  std::int32_t chunk = 0;
  std::uint64_t place = 0;
  int rank = 0;
};
StepOrder order_of(int rank, Kind kind, const Row& row);
bool operator<(const StepOrder& a, const StepOrder& b);

}  // namespace gradmon
