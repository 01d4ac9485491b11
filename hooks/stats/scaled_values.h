// SPDX-License-Identifier: Apache-2.0
// Numbers of low precision that share scales, as tensors of torchao and Transformer Engine store them.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/DimVector.h>

#include <cstdint>
#include <functional>

#include "control/vocabulary.h"

namespace gradmon {

// Number i is its code, decoded, times the scale of its block; codes and scales are matrices.
struct ScaledValues {
  // The number format of a code. e2m1, e2m3 and e3m2: the bits of exponent and mantissa.
  enum class Code : std::uint8_t {
    number,           // of the type of `codes`
    index,            // in `table`
    pair_of_indices,  // two in a byte, the first in the high bits
    pair_of_e2m1,     // two in a byte, the first in the low bits
    e2m3,
    e3m2
  };
  enum class Scaling : std::uint8_t { multiplied, divided };

  at::Tensor codes;
  Code code = Code::number;
  at::Tensor table;  // one dimension
  at::Tensor scale;  // of each block of block_rows x block_columns numbers; without dimensions: of all
  std::int64_t block_rows = 1;
  std::int64_t block_columns = 1;
  Scaling scaling = Scaling::multiplied;
  at::ScalarType type = at::kFloat;  // in which the tensor's class computes the numbers
  DType dtype = DType::unknown;      // in the rows
  c10::DimVector sizes;              // of the tensor

  std::int64_t rows() const { return codes.size(0); }
  std::int64_t columns() const;
};

// Calls `take` with the numbers, at most `most` at a time, as strided tensors, each number once. Call it with
// PlainTorch in scope. Throws what torch throws.
void each_piece(const ScaledValues& values, std::int64_t most,
                const std::function<void(const at::Tensor&)>& take);

// The numbers of a matrix of bytes that are powers of two (E8M0: 2^(x - 127), 255 is NaN), in float32.
at::Tensor powers_of_two(const at::Tensor& exponents);
// The matrix of `rows` x `columns` scales in cuBLAS' tiles of 128 x 4. Throws if `tiles` has another number
// of elements.
at::Tensor from_tiles(const at::Tensor& tiles, std::int64_t rows, std::int64_t columns);

}  // namespace gradmon
