// SPDX-License-Identifier: Apache-2.0
// Divides contiguous numbers among torch's threads. Include it only in files compiled with OpenMP.
#pragma once

#include <ATen/Parallel.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "hooks/stats/kernels.h"

namespace gradmon {

// The kernels' name of the type; unset: the kernels do not read the type.
inline std::optional<FloatType> float_type_of(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Float:
      return FloatType::float32;
    case c10::ScalarType::Double:
      return FloatType::float64;
    case c10::ScalarType::Half:
      return FloatType::float16;
    case c10::ScalarType::BFloat16:
      return FloatType::bfloat16;
    default:
      return std::nullopt;
  }
}

// Calls read(first, size) for each chunk of `count` elements, on torch's threads if there are several, and
// combines the results in order with add(total, part). The chunks depend on `count` only.
template <typename Part, typename Read, typename Add>
Part read_in_chunks(std::size_t count, Read read, Add add) {
  constexpr std::size_t kChunks = 64;                   // at most
  constexpr std::size_t kChunk = std::size_t{1} << 18;  // elements of a chunk, at least
  const std::size_t chunk = std::max(kChunk, (count + kChunks - 1) / kChunks);
  if (count <= chunk) return read(std::size_t{0}, count);
  const std::size_t chunks = (count + chunk - 1) / chunk;
  std::array<Part, kChunks> parts{};
  at::parallel_for(0, static_cast<std::int64_t>(chunks), 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i)
      parts[i] = read(i * chunk, std::min(chunk, count - i * chunk));
  });
  for (std::size_t i = 1; i < chunks; ++i) add(parts[0], parts[i]);
  return parts[0];
}

}  // namespace gradmon
