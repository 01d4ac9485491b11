// SPDX-License-Identifier: Apache-2.0
// How an attention is laid out.
#pragma once

#include <cstdint>

namespace gradmon {

// How the axes of Q and K follow one another: sequence, batch, head, size of a head.
enum class AxisOrder : std::uint8_t { sbhd, bshd };

// Whether query i of an attention sees the keys 0 … i alone.
enum class Causal : bool { no, yes };

}  // namespace gradmon
