// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "control/vocabulary.h"

namespace gradmon {

// The users of a reading, as bits. A parameter is read once for all of them.
using Readers = std::uint8_t;
inline constexpr Readers kForRows = 1;       // the sinks, with the alert rules and replicas' comparison
inline constexpr Readers kForEachNorm = 2;   // scalars of single parameters
inline constexpr Readers kForWholeNorm = 4;  // scalars over all parameters
inline constexpr Readers kForWholeNormBetween = 8;  // the same, in steps that are not collected
inline constexpr Readers kForFlight = 16;           // the flight recorder, with the alert rules
inline constexpr Readers kForReplicas = 32;         // comparison with other ranks alone
inline constexpr Readers kForNorms = kForEachNorm | kForWholeNorm | kForWholeNormBetween;
// In collected steps, and in the steps between them.
inline constexpr Readers kInCollected = kForRows | kForEachNorm | kForWholeNorm | kForReplicas;
inline constexpr Readers kInBetween = kForFlight | kForWholeNormBetween;

// Names a row within a step.
struct RowKey {
  Kind kind = Kind::other;
  std::uint32_t target = 0;    // NameTable id of the parameter or module
  std::uint64_t sequence = 0;  // place within the step: the order of the rows of one kind
  std::int32_t micro_step = 0;
  std::int64_t read_at = 0;  // orders the step's rows of all kinds by the time of their reading
  Readers readers = kForRows;
};

// A row without its step and values.
struct RecordHead : RowKey {
  // They use the bytes that RowKey leaves at its end.
  DType dtype = DType::unknown;
  ValueMask mask = 0;       // bit_of every valid value
  std::uint32_t shape = 0;  // NameTable id of the shape text, as "[16, 8]"
};

// One row of measurement. Hooks make it, the writer thread writes it. A row of grad_reduced has the values of
// all statistics; its mask names those that the config asks for.
struct Record : RecordHead {
  std::int64_t step = 0;
  std::uint64_t revision = 0;
  std::array<double, kValues> values{};  // by Op or Column; valid only where `mask` has the bit
};
static_assert(std::is_trivially_copyable_v<Record>);

// The numbers of values in the bins of equal width that divide [-1, 1], as torch.histc counts them. Bin i has
// the values from 2i/30 - 1 up to, but not including, 2(i + 1)/30 - 1; the last bin includes 1. NaN and
// values outside [-1, 1] are in no bin.
inline constexpr std::size_t kBins = 30;
using BinCounts = std::array<std::uint64_t, kBins>;

// One measurement that is too large for a Record. Hooks make it, the writer thread writes it.
struct Histogram {
  std::int64_t step = 0;
  std::uint64_t revision = 0;
  BinCounts counts{};
  std::uint32_t target = 0;  // NameTable id of the parameter
  Kind kind = Kind::update;  // is_histogram()
};
static_assert(std::is_trivially_copyable_v<Histogram>);

// In Record::mask: the record's values come from its step's LateValues; values[0] has its index there.
inline constexpr ValueMask kLate = ValueMask{1} << 15U;
static_assert(kValues < 15);

// Values that were still being computed, on a GPU, when their records were pushed. One thread at a time, any
// thread.
class LateValues {
 public:
  virtual ~LateValues() = default;

  // True if complete() need not wait. Does not wait.
  virtual bool ready() noexcept = 0;
  // Fills in the values of a record that has kLate, and clears that bit. Waits until they are ready. False:
  // it is no row; if the bit remains, its values cannot be had.
  virtual bool complete(Record& record) noexcept = 0;
};

}  // namespace gradmon
