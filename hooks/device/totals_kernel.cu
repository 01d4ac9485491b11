// SPDX-License-Identifier: Apache-2.0
// The totals of many tensors in one launch, at the speed of the memory. Each block reads one chunk of a
// tensor; the tensor's last block to finish adds up the chunks in order, so that the result does not
// depend on the order in which blocks run. NVRTC compiles this at run time; nvcc can compile it, too.
//
// Sums are double. Eight numbers (four float32, sixteen float8) are first added in float32, in a tree, and
// their squares too: relative to the sum of magnitudes this costs 1.8e-7 at most. If a sum leaves the range
// of float32, the numbers are added in double.
#include "hooks/device/totals_layout.h"

namespace gradmon::device {
namespace {

using Word = unsigned;

constexpr unsigned kWarps = kThreads / 32;

__device__ float bits_as_float(Word bits) { return __uint_as_float(bits); }
__device__ float infinity() { return bits_as_float(0x7f800000); }

__device__ float half_as_float(Word bits) {
  float value;
  asm("{.reg .b16 half; cvt.u16.u32 half, %1; cvt.f32.f16 %0, half;}" : "=f"(value) : "r"(bits));
  return value;
}

// A number of one byte: sign, kExponentBits, fraction. A bias of 1 more and one NaN in place of minus zero:
// the types "fnuz".
template <int kExponentBits, bool kFnuz>
__device__ float byte_as_float(Word byte) {
  constexpr int kFractionBits = 7 - kExponentBits;
  constexpr int kBias = (1 << (kExponentBits - 1)) - 1 + (kFnuz ? 1 : 0);
  const Word magnitude = byte & 0x7f;
  const Word sign = (byte & 0x80) << 24;
  const bool nan = kFnuz ? byte == 0x80 : kExponentBits == 4 ? magnitude == 0x7f : magnitude > 0x7c;
  if (nan) return bits_as_float(0x7fc00000);
  if (!kFnuz && kExponentBits == 5 && magnitude == 0x7c) return bits_as_float(sign | 0x7f800000);
  const Word exponent = magnitude >> kFractionBits;
  const float normal = bits_as_float((magnitude << (23 - kFractionBits)) + (Word(127 - kBias) << 23));
  const float subnormal = float(magnitude) * bits_as_float(Word(127 + 1 - kBias - kFractionBits) << 23);
  const float value = exponent == 0 ? subnormal : normal;
  return bits_as_float(sign | __float_as_uint(value));
}

// Element types: their size, and the value of one element in a word of 32 bits.
struct Float32 {
  static constexpr int kBytes = 4;
  __device__ static float value(Word word, int) { return bits_as_float(word); }
};

struct Bfloat16 {
  static constexpr int kBytes = 2;
  __device__ static float value(Word word, int i) {
    return bits_as_float(i == 0 ? word << 16 : word & 0xffff0000);
  }
};

struct Float16 {
  static constexpr int kBytes = 2;
  __device__ static float value(Word word, int i) {
    return half_as_float(i == 0 ? word & 0xffff : word >> 16);
  }
};

template <int kExponentBits, bool kFnuz>
struct Float8 {
  static constexpr int kBytes = 1;
  __device__ static float value(Word word, int i) {
    return byte_as_float<kExponentBits, kFnuz>((word >> (8 * i)) & 0xff);
  }
};

struct Float64 {
  static constexpr int kBytes = 8;
};

template <int kCount>
__device__ float tree_sum(const float* values) {
  if constexpr (kCount == 1) {
    return values[0];
  } else {
    return tree_sum<kCount / 2>(values) + tree_sum<kCount / 2>(values + kCount / 2);
  }
}

// True if the squares of the numbers, and their sum, were right in float32: neither too small nor too large.
__device__ bool in_range(float sum_squares) { return sum_squares >= 1e-30F && sum_squares <= 1e37F; }

// The totals of one thread's share of a chunk.
template <typename T>
struct Tally {
  float min = infinity();
  float max = -infinity();
  double sum = 0;
  double sum_squares = 0;
  unsigned nans = 0;
  unsigned zeros = 0;

  __device__ void take(float value, float threshold) {
    min = fminf(min, value);
    max = fmaxf(max, value);
    zeros += fabsf(value) < threshold ? 1 : 0;
  }

  __device__ void add_wide(float value) {
    const double wide = value;
    sum += wide;
    sum_squares = fma(wide, wide, sum_squares);
    nans += value != value ? 1 : 0;
  }

  __device__ void take_one(const char* at, double, float threshold) {
    Word bits = 0;
    if constexpr (T::kBytes == 4) bits = *reinterpret_cast<const Word*>(at);
    if constexpr (T::kBytes == 2) bits = *reinterpret_cast<const unsigned short*>(at);
    if constexpr (T::kBytes == 1) bits = *reinterpret_cast<const unsigned char*>(at);
    const float value = T::value(bits, 0);
    take(value, threshold);
    add_wide(value);
  }

  __device__ void take_vector(const uint4& vector, double, float threshold) {
    constexpr int kInWord = 4 / T::kBytes;
    constexpr int kCount = 4 * kInWord;
    const Word words[4] = {vector.x, vector.y, vector.z, vector.w};
    float values[kCount];
    float squares[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      values[i] = T::value(words[i / kInWord], i % kInWord);
      take(values[i], threshold);
      squares[i] = values[i] * values[i];
    }
    const float narrow_squares = tree_sum<kCount>(squares);
    if (in_range(narrow_squares)) {
      sum += tree_sum<kCount>(values);
      sum_squares += narrow_squares;
      return;
    }
    if ((vector.x | vector.y | vector.z | vector.w) == 0) return;  // zeros add nothing
#pragma unroll
    for (int i = 0; i < kCount; ++i) add_wide(values[i]);
  }
};

template <>
struct Tally<Float64> {
  double min = infinity();
  double max = -infinity();
  double sum = 0;
  double sum_squares = 0;
  unsigned nans = 0;
  unsigned zeros = 0;

  __device__ void take(double value, double eps) {
    min = fmin(min, value);
    max = fmax(max, value);
    sum += value;
    sum_squares = fma(value, value, sum_squares);
    nans += value != value ? 1 : 0;
    zeros += fabs(value) < eps ? 1 : 0;
  }

  __device__ void take_one(const char* at, double eps, float) {
    take(*reinterpret_cast<const double*>(at), eps);
  }

  __device__ void take_vector(const uint4& vector, double eps, float) {
    take(__hiloint2double(static_cast<int>(vector.y), static_cast<int>(vector.x)), eps);
    take(__hiloint2double(static_cast<int>(vector.w), static_cast<int>(vector.z)), eps);
  }
};

__device__ uint4 load(const char* at) {  // Read once: it should not push training's data out of the caches.
  uint4 vector;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(vector.x), "=r"(vector.y), "=r"(vector.z), "=r"(vector.w)
               : "l"(at));
  return vector;
}

__device__ Totals combined(const Totals& a, const Totals& b) {
  return {fmin(a.min, b.min), fmax(a.max, b.max), a.sum + b.sum, a.sum_squares + b.sum_squares,
          a.nans + b.nans,    a.zeros + b.zeros};
}

__device__ Totals of_lane_below(const Totals& own, unsigned distance) {
  constexpr unsigned kAll = 0xffffffff;
  return {__shfl_down_sync(kAll, own.min, distance),  __shfl_down_sync(kAll, own.max, distance),
          __shfl_down_sync(kAll, own.sum, distance),  __shfl_down_sync(kAll, own.sum_squares, distance),
          __shfl_down_sync(kAll, own.nans, distance), __shfl_down_sync(kAll, own.zeros, distance)};
}

__device__ Totals sum_of_warp(Totals own) {
#pragma unroll
  for (unsigned distance = 16; distance > 0; distance /= 2) own = combined(own, of_lane_below(own, distance));
  return own;
}

// The result is right in thread 0.
__device__ Totals sum_of_block(Totals own) {
  __shared__ Totals of_warps[kWarps];
  own = sum_of_warp(own);
  __syncthreads();  // The last sums have been read.
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = own;
  __syncthreads();
  if (threadIdx.x != 0) return own;
#pragma unroll
  for (unsigned i = 1; i < kWarps; ++i) own = combined(own, of_warps[i]);
  return own;
}

template <typename T>
__device__ Totals totals_of_chunk(const TensorPart& part, unsigned chunk, double eps, float threshold) {
  constexpr unsigned kSize = T::kBytes;
  const ChunkRange range = range_of(part, chunk, kSize);
  const char* data = static_cast<const char*>(part.data);
  const char* body = data + range.head * kSize;

  Tally<T> tally;
  unsigned long long i = range.first_vector + threadIdx.x;
  for (; i + (kLoads - 1) * kThreads < range.end_vector; i += kLoads * kThreads) {
    uint4 loaded[kLoads];
#pragma unroll
    for (int k = 0; k < kLoads; ++k) loaded[k] = load(body + (i + k * kThreads) * 16);
#pragma unroll
    for (int k = 0; k < kLoads; ++k) tally.take_vector(loaded[k], eps, threshold);
  }
  for (; i < range.end_vector; i += kThreads) tally.take_vector(load(body + i * 16), eps, threshold);
  if (chunk == 0 && threadIdx.x < range.head) tally.take_one(data + threadIdx.x * kSize, eps, threshold);
  if (chunk + 1 == part.chunks && range.tail + threadIdx.x < part.count)
    tally.take_one(data + (range.tail + threadIdx.x) * kSize, eps, threshold);
  return {tally.min, tally.max, tally.sum, tally.sum_squares, double(tally.nans), double(tally.zeros)};
}

__device__ bool is_last_of_tensor(unsigned* finished, unsigned chunks) {
  __shared__ bool last;
  if (threadIdx.x == 0) {
    __threadfence();  // The partial result is written before this block counts as finished.
    last = atomicAdd(finished, 1) + 1 == chunks;
  }
  __syncthreads();
  return last;
}

__device__ Totals load_partial(const Totals* at) {
  return {__ldcg(&at->min),         __ldcg(&at->max),  __ldcg(&at->sum),
          __ldcg(&at->sum_squares), __ldcg(&at->nans), __ldcg(&at->zeros)};
}

__device__ void finish_tensor(const TensorPart& part, const Totals* partials, unsigned* finished,
                              Totals* result) {
  Totals own = {infinity(), -infinity(), 0, 0, 0, 0};
  for (unsigned i = threadIdx.x; i < part.chunks; i += kThreads)
    own = combined(own, load_partial(partials + part.first_chunk + i));
  own = sum_of_block(own);
  if (threadIdx.x != 0) return;
  *result = own;
  *finished = 0;
}

// The index of the chunk's tensor.
template <int kTensors>
__device__ unsigned tensor_of(const Launch<kTensors>& launch, unsigned chunk) {
  unsigned low = 0;
  unsigned high = launch.tensors;
  while (high - low > 1) {
    const unsigned middle = (low + high) / 2;
    (launch.parts[middle].first_chunk <= chunk ? low : high) = middle;
  }
  return low;
}

template <typename T, int kTensors>
__device__ void find_totals(const Launch<kTensors>& launch) {
  const unsigned tensor = kTensors == 1 ? 0 : tensor_of(launch, blockIdx.x);
  const TensorPart& part = launch.parts[tensor];
  // Chunks go from the end to the beginning: the L2 cache holds the end of a tensor just written, and its
  // next reader starts at the beginning.
  const unsigned chunk = part.chunks - 1 - (blockIdx.x - part.first_chunk);
  const Totals own = sum_of_block(totals_of_chunk<T>(part, chunk, launch.eps, launch.threshold));
  Totals* const result = launch.results + part.result;
  if (part.chunks == 1) {
    if (threadIdx.x == 0) *result = own;
    return;
  }
  if (threadIdx.x == 0) launch.partials[part.first_chunk + chunk] = own;
  if (!is_last_of_tensor(launch.finished + tensor, part.chunks)) return;
  __threadfence();  // The other blocks' results are read after those blocks have finished.
  finish_tensor(part, launch.partials, launch.finished + tensor, result);
}

}  // namespace
}  // namespace gradmon::device

namespace gradmon::device {
namespace {
using Float8E4m3fn = Float8<4, false>;
using Float8E4m3fnuz = Float8<4, true>;
using Float8E5m2 = Float8<5, false>;
using Float8E5m2fnuz = Float8<5, true>;
}  // namespace
}  // namespace gradmon::device

#define GRADMON_TOTALS(Type, suffix)                                                                  \
  extern "C" __global__ void __launch_bounds__(gradmon::device::kThreads)                             \
      gradmon_one##suffix(const __grid_constant__ gradmon::device::Launch<1> launch) {                \
    gradmon::device::find_totals<gradmon::device::Type>(launch);                                      \
  }                                                                                                   \
  extern "C" __global__ void __launch_bounds__(gradmon::device::kThreads)                             \
      gradmon_many##suffix(const __grid_constant__ gradmon::device::Launch<GRADMON_TENSORS> launch) { \
    gradmon::device::find_totals<gradmon::device::Type>(launch);                                      \
  }

#ifdef GRADMON_TYPE  // one alone: NVRTC takes less than half a second for it
GRADMON_TOTALS(GRADMON_TYPE, )
#else
GRADMON_TOTALS(Float32, _float32)
GRADMON_TOTALS(Float64, _float64)
GRADMON_TOTALS(Float16, _float16)
GRADMON_TOTALS(Bfloat16, _bfloat16)
GRADMON_TOTALS(Float8E4m3fn, _float8_e4m3fn)
GRADMON_TOTALS(Float8E4m3fnuz, _float8_e4m3fnuz)
GRADMON_TOTALS(Float8E5m2, _float8_e5m2)
GRADMON_TOTALS(Float8E5m2fnuz, _float8_e5m2fnuz)
#endif
