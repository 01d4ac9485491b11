// SPDX-License-Identifier: Apache-2.0
// Records for tests.
#pragma once

#include "writers/queue/name_table.h"
#include "writers/queue/record.h"

namespace gradmon {

// A record with a value for every op, like the sample rows of FORMAT.md.
inline Record sample_record(Kind kind, std::int64_t step, std::uint32_t target, std::uint32_t shape,
                            const std::array<double, kOps>& values) {
  Record record;
  record.kind = kind;
  record.step = step;
  record.revision = 1;
  record.target = target;
  record.shape = shape;
  std::copy(values.begin(), values.end(), record.values.begin());
  record.mask = (1U << kOps) - 1;
  record.dtype = DType::float32;
  return record;
}

inline Record plain_record(std::int64_t step, std::uint64_t sequence, std::uint64_t revision = 1) {
  Record record;
  record.kind = Kind::grad_reduced;
  record.step = step;
  record.sequence = sequence;
  record.revision = revision;
  record.mask = bit_of(Op::norm);
  return record;
}

// With target + 1 values in bin 15.
inline Histogram plain_histogram(std::int64_t step, std::uint32_t target, Kind kind = Kind::update) {
  Histogram histogram;
  histogram.step = step;
  histogram.revision = 1;
  histogram.kind = kind;
  histogram.target = target;
  histogram.counts[15] = target + 1;
  return histogram;
}

}  // namespace gradmon
