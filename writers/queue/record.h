// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

#include "control/vocabulary.h"

namespace gradmon {

// One row of measurement. Hooks make it, the writer thread writes it. A row of grad_reduced has the values of
// all statistics; its mask names those that the config asks for.
struct Record {
  std::int64_t step = 0;
  std::uint64_t revision = 0;
  std::uint64_t sequence = 0;            // place within the step: the order of the rows of one kind
  std::int64_t read_at = 0;              // orders the step's rows of all kinds by the time of their reading
  std::array<double, kValues> values{};  // by Op or Column; valid only where `mask` has the bit
  std::uint32_t target = 0;              // NameTable id of the parameter or module
  std::uint32_t shape = 0;               // NameTable id of the shape text, as "[16, 8]"
  std::int32_t micro_step = 0;
  Kind kind = Kind::other;
  DType dtype = DType::unknown;
  ValueMask mask = 0;  // bit_of every valid value
};
static_assert(std::is_trivially_copyable_v<Record>);

}  // namespace gradmon
