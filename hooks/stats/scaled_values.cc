// SPDX-License-Identifier: Apache-2.0
#include "hooks/stats/scaled_values.h"

#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace gradmon {
namespace {

using Code = ScaledValues::Code;

std::int64_t numbers_in_code(Code code) {
  return code == Code::pair_of_indices || code == Code::pair_of_e2m1 ? 2 : 1;
}

// Unpacks two numbers from each byte, in order.
at::Tensor halves(const at::Tensor& bytes, Code code) {
  const at::Tensor high = bytes.bitwise_right_shift(4);
  const at::Tensor low = bytes.bitwise_and(15);
  const bool high_first = code == Code::pair_of_indices;
  return at::stack({high_first ? high : low, high_first ? low : high}, -1).flatten(-2);
}

// A sign, then bits of exponent and mantissa: the bits of a float16 with a longer exponent, except for a
// factor that is a power of two.
at::Tensor small_floats(const at::Tensor& codes, int exponent, int mantissa) {
  const at::Tensor wide = codes.to(at::kInt);
  const int sign = exponent + mantissa;
  const at::Tensor magnitude = wide.bitwise_and((1 << sign) - 1).bitwise_left_shift(10 - mantissa);
  const at::Tensor signs = wide.bitwise_right_shift(sign).bitwise_and(1).bitwise_left_shift(15);
  const int bias = (1 << (exponent - 1)) - 1;
  return signs.bitwise_or(magnitude)
      .to(at::kShort)
      .view(at::kHalf)
      .to(at::kFloat)
      .mul(std::ldexp(1.0, 15 - bias));
}

at::Tensor looked_up(const at::Tensor& table, const at::Tensor& indices) {
  return table.index_select(0, indices.reshape(-1).to(at::kInt)).view(indices.sizes());
}

at::Tensor decoded(const ScaledValues& values, const at::Tensor& codes) {
  switch (values.code) {
    case Code::number:
      return codes.to(values.type);
    case Code::index:
      return looked_up(values.table, codes);
    case Code::pair_of_indices:
      return looked_up(values.table, halves(codes, values.code));
    case Code::pair_of_e2m1:
      return small_floats(halves(codes, values.code), 2, 1);
    case Code::e2m3:
      return small_floats(codes, 2, 3);
    case Code::e3m2:
      break;
  }
  return small_floats(codes, 3, 2);
}

// A run of rows or columns: whole blocks, or a part of one block.
std::int64_t run_from(std::int64_t begin, std::int64_t end, std::int64_t block, std::int64_t most) {
  const std::int64_t left = end - begin;
  if (begin % block == 0 && std::min(left, most) >= block) return std::min(left, most) / block * block;
  return std::min({left, most, block - begin % block});
}

struct Run {
  std::int64_t begin, count, block;

  std::int64_t first_block() const { return begin / block; }
  std::int64_t blocks() const { return (count + block - 1) / block; }
  at::Tensor of(const at::Tensor& scale, std::int64_t dimension) const {
    return scale.narrow(dimension, first_block(), blocks());
  }
};

at::Tensor piece(const ScaledValues& values, const Run& rows, const Run& columns) {
  const std::int64_t packed = numbers_in_code(values.code);
  const at::Tensor codes = values.codes.narrow(0, rows.begin, rows.count)
                               .narrow(1, columns.begin / packed, columns.count / packed);
  at::Tensor numbers = decoded(values, codes);
  at::Tensor scale = values.scale;
  if (scale.dim() != 0) {  // a scale without dimensions does not change the numbers' type
    scale = columns.of(rows.of(scale, 0), 1).unsqueeze(1).unsqueeze(3);
    numbers = numbers.reshape(
        {rows.blocks(), rows.count / rows.blocks(), columns.blocks(), columns.count / columns.blocks()});
  }
  return values.scaling == ScaledValues::Scaling::divided ? numbers.div(scale) : numbers.mul(scale);
}

}  // namespace

std::int64_t ScaledValues::columns() const { return codes.size(1) * numbers_in_code(code); }

void each_piece(const ScaledValues& values, std::int64_t most,
                const std::function<void(const at::Tensor&)>& take) {
  const std::int64_t rows = values.rows();
  const std::int64_t columns = values.columns();
  for (Run wide{0, 0, values.block_columns}; wide.begin < columns; wide.begin += wide.count) {
    wide.count = run_from(wide.begin, columns, wide.block, most);
    for (Run high{0, 0, values.block_rows}; high.begin < rows; high.begin += high.count) {
      high.count = run_from(high.begin, rows, high.block, std::max<std::int64_t>(1, most / wide.count));
      take(piece(values, high, wide));
    }
  }
}

at::Tensor powers_of_two(const at::Tensor& exponents) {
  const at::Tensor wide = exponents.view(at::kByte).to(at::kInt);
  const at::Tensor numbers = wide.bitwise_left_shift(23).masked_fill(wide.eq(0), 1 << 22).view(at::kFloat);
  return numbers.masked_fill(wide.eq(255), std::numeric_limits<double>::quiet_NaN());
}

at::Tensor from_tiles(const at::Tensor& tiles, std::int64_t rows, std::int64_t columns) {
  const std::int64_t high = (rows + 127) / 128;
  const std::int64_t wide = (columns + 3) / 4;
  const at::Tensor matrix = tiles.reshape({high, wide, 32, 4, 4}).permute({0, 3, 2, 1, 4});
  return matrix.reshape({high * 128, wide * 4}).narrow(0, 0, rows).narrow(1, 0, columns);
}

}  // namespace gradmon
