// SPDX-License-Identifier: Apache-2.0
#include "hooks/stats/tensor_stats.h"

#include <c10/util/SmallVector.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "hooks/stats/block_sample.h"
#include "hooks/stats/float_chunks.h"
#include "hooks/stats/kernels.h"
#include "hooks/stats/prefetch.h"

namespace gradmon {
namespace {

constexpr std::size_t kBuffer = 1024;  // doubles gathered at a time
constexpr std::int64_t kRun = 256;     // contiguous elements, at least, to be read in place

struct Dimension {
  std::int64_t stride;
  std::int64_t size;
};
using Dimensions = c10::SmallVector<Dimension, 8>;

// The dimensions, innermost first, without those of size 1 or stride 0; adjacent dimensions that are
// contiguous are merged. Never empty. `repeats`: how often each remaining element counts.
Dimensions dimensions_of(const at::Tensor& tensor, std::uint64_t& repeats) {
  Dimensions found;
  repeats = 1;
  for (std::int64_t i = 0; i < tensor.dim(); ++i) {
    const Dimension dimension{tensor.stride(i), tensor.size(i)};
    if (dimension.size == 1) continue;
    if (dimension.stride == 0) {
      repeats *= static_cast<std::uint64_t>(dimension.size);
    } else {
      found.push_back(dimension);
    }
  }
  std::sort(found.begin(), found.end(),
            [](const Dimension& a, const Dimension& b) { return a.stride < b.stride; });
  Dimensions merged;
  for (const Dimension& next : found) {
    if (!merged.empty() && next.stride == merged.back().stride * merged.back().size) {
      merged.back().size *= next.size;
    } else {
      merged.push_back(next);
    }
  }
  if (merged.empty()) merged.push_back({1, 1});
  return merged;
}

PartialStats flat_stats(FloatType type, const void* data, std::size_t count, double eps) {
  constexpr std::size_t kFew = 8;  // A model has many such tensors, and the kernel takes longer to begin.
  if (count < kFew) return reference_stats(type, data, count, eps);
  const auto read = [&](std::size_t first, std::size_t size) {
    return kernel_stats(type, static_cast<const unsigned char*>(data) + first * size_of(type), size, eps);
  };
  return read_in_chunks<PartialStats>(count, read,
                                      [](PartialStats& all, const PartialStats& one) { all.add(one); });
}

// Converts elements of any type and stride to double, and passes them to the kernel kBuffer at a time.
class Gather {
 public:
  Gather(double eps, PartialStats& stats) : eps_(eps), stats_(stats) {}

  template <typename T>
  void take(const T* data, const Dimension& run) {
    for (std::int64_t i = 0; i < run.size; ++i) {
      if (filled_ == kBuffer) flush();
      buffer_[filled_++] = static_cast<double>(data[i * run.stride]);
    }
  }

  void flush() {
    stats_.add(kernel_stats(FloatType::float64, buffer_.data(), filled_, eps_));
    filled_ = 0;
  }

 private:
  const double eps_;
  PartialStats& stats_;
  std::size_t filled_ = 0;
  std::array<double, kBuffer> buffer_;
};

// Calls `read` with the start of each innermost run.
template <typename T, typename Read>
void each_run(const T* data, const Dimensions& dimensions, Read read) {
  c10::SmallVector<std::int64_t, 8> index(dimensions.size(), 0);
  for (;;) {
    read(data);
    std::size_t d = 1;
    for (; d < dimensions.size(); ++d) {
      data += dimensions[d].stride;
      if (++index[d] < dimensions[d].size) break;
      data -= dimensions[d].stride * dimensions[d].size;
      index[d] = 0;
    }
    if (d == dimensions.size()) return;
  }
}

template <typename T>
PartialStats gathered_stats(const void* data, const Dimensions& dimensions, double eps) {
  PartialStats stats;
  Gather gather(eps, stats);
  each_run(static_cast<const T*>(data), dimensions, [&](const T* run) { gather.take(run, dimensions[0]); });
  gather.flush();
  return stats;
}

template <typename T>
PartialStats float_stats(const at::Tensor& tensor, const Dimensions& dimensions, double eps) {
  if (dimensions[0].stride != 1 || dimensions[0].size < std::min(kRun, tensor.numel())) {
    return gathered_stats<T>(tensor.data_ptr(), dimensions, eps);
  }
  const FloatType type = *float_type_of(tensor.scalar_type());
  PartialStats stats;
  const auto run_size = static_cast<std::size_t>(dimensions[0].size);
  each_run(static_cast<const T*>(tensor.data_ptr()), dimensions,
           [&](const T* run) { stats.add(flat_stats(type, run, run_size, eps)); });
  return stats;
}

PartialStats integer_stats(c10::ScalarType type, const void* data, const Dimensions& dimensions, double eps) {
  switch (type) {
    case c10::ScalarType::Char:
      return gathered_stats<std::int8_t>(data, dimensions, eps);
    case c10::ScalarType::Short:
      return gathered_stats<std::int16_t>(data, dimensions, eps);
    case c10::ScalarType::Int:
      return gathered_stats<std::int32_t>(data, dimensions, eps);
    case c10::ScalarType::Long:
      return gathered_stats<std::int64_t>(data, dimensions, eps);
    default:  // Byte, Bool
      return gathered_stats<std::uint8_t>(data, dimensions, eps);
  }
}

PartialStats stats_of(const at::Tensor& tensor, const Dimensions& dimensions, double eps) {
  switch (tensor.scalar_type()) {
    case c10::ScalarType::Float:
      return float_stats<float>(tensor, dimensions, eps);
    case c10::ScalarType::Double:
      return float_stats<double>(tensor, dimensions, eps);
    case c10::ScalarType::Half:
      return float_stats<c10::Half>(tensor, dimensions, eps);
    case c10::ScalarType::BFloat16:
      return float_stats<c10::BFloat16>(tensor, dimensions, eps);
    default:
      return integer_stats(tensor.scalar_type(), tensor.data_ptr(), dimensions, eps);
  }
}

PartialStats block_stats(c10::ScalarType type, const void* data, std::size_t count, double eps) {
  if (const auto float_type = float_type_of(type)) return kernel_stats(*float_type, data, count, eps);
  return integer_stats(type, data, {{1, static_cast<std::int64_t>(count)}}, eps);
}

void add_block(SampledStats& all, const PartialStats& one, const SampledBlocks::Block& block) {
  (block.in_full_group ? all.of_full_groups : all.of_rest).add(one);
  const auto elements = static_cast<double>(one.elements);
  all.means.add({elements, one.sum / elements, 0});
  all.squares.add({elements, one.sum_squares / elements, 0});
}

}  // namespace

bool reads_in_memory(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Float:
    case c10::ScalarType::Double:
    case c10::ScalarType::Half:
    case c10::ScalarType::BFloat16:
    case c10::ScalarType::Char:
    case c10::ScalarType::Byte:
    case c10::ScalarType::Short:
    case c10::ScalarType::Int:
    case c10::ScalarType::Long:
    case c10::ScalarType::Bool:
      return true;
    default:
      return false;
  }
}

PartialStats cpu_stats(const at::Tensor& tensor, double eps) {
  const auto type = float_type_of(tensor.scalar_type());
  if (type && tensor.is_contiguous())
    return flat_stats(*type, tensor.data_ptr(), static_cast<std::size_t>(tensor.numel()), eps);
  std::uint64_t repeats = 1;
  const Dimensions dimensions = dimensions_of(tensor, repeats);
  PartialStats stats = stats_of(tensor, dimensions, eps);
  stats.repeat(repeats);
  return stats;
}

bool is_sampled(const at::Tensor& tensor, const Sampling& sampling) {
  return sampling.group > 1 && tensor.nbytes() > kMostReadWhole &&
         tensor.unsafeGetTensorImpl()->is_non_overlapping_and_dense();
}

SampledStats sampled_stats(const at::Tensor& tensor, double eps, const Sampling& sampling) {
  const c10::ScalarType type = tensor.scalar_type();
  const std::size_t item = tensor.element_size(), block = kSampleBlock / item;
  const auto elements = static_cast<std::size_t>(tensor.numel());
  const auto* const data = static_cast<const unsigned char*>(tensor.data_ptr());
  // A chunk has the groups whose blocks, laid end to end, begin in it.
  const auto read = [&](std::size_t first, std::size_t size) {
    SampledBlocks blocks(sampling, elements, block);
    SampledStats found;
    const std::size_t end = (first + size + block - 1) / block;
    std::size_t group = (first + block - 1) / block;
    if (group == end) return found;
    SampledBlocks::Block next = blocks[group];
    while (group < end) {
      const SampledBlocks::Block now = next;
      if (++group < end) {
        next = blocks[group];
        // The processor reads ahead within a page, but does not know the next one.
        ask_for(data + next.first * item, next.size * item);
      }
      add_block(found, block_stats(type, data + now.first * item, now.size, eps), now);
    }
    return found;
  };
  const std::size_t groups = SampledBlocks(sampling, elements, block).groups();
  return read_in_chunks<SampledStats>(groups * block, read,
                                      [](SampledStats& all, const SampledStats& part) { all.add(part); });
}

}  // namespace gradmon
