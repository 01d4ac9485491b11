// SPDX-License-Identifier: Apache-2.0
// Statistics of tensors on a CUDA device by our own kernel (totals_kernel.cu): one pass over the memory, one
// launch for many tensors. No thread waits for the device: the kernel runs on the current stream and writes
// its results into pinned memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "hooks/device/device_stats.h"

namespace gradmon {

// The texts of two files of this folder; CMake makes them.
extern const char* const kTotalsKernelSource;
extern const char* const kTotalsLayoutSource;

// Compiles totals_kernel.cu for a CUDA device with NVRTC, which is found at run time.
struct CompiledKernel {
  std::string image;     // machine code of the device; "" if it could not be compiled
  unsigned tensors = 0;  // per launch
  std::string why;       // the reason, if `image` is empty
};

// The image that an earlier process has put into the cache.
enum class KeptKernel : std::uint8_t { used, ignored };

// The functions gradmon_one and gradmon_many for the element type `type`, a name of totals_kernel.cu
// ("Float32"), for compute capability `major`.`minor` and a driver of `driver_version` (13000: CUDA 13.0).
// Looks first in the cache, a folder of the user's (`$XDG_CACHE_HOME`, otherwise `~/.cache`). Takes half a
// second if the cache has no image. Any thread.
CompiledKernel compile_totals_kernel(const std::string& type, int major, int minor, int driver_version,
                                     KeptKernel kept = KeptKernel::used);

// The seven values by Op. Null: the kernel does not read this tensor (its type, holes in its memory, no
// NVRTC: see cuda_totals_problem()); use device_stats(). `tensor`: strided, real, not empty, its storage
// allocated, on a CUDA device. Sums are double; see totals_kernel.cu for their accuracy. For the same memory
// the result is the same in every run.
//
// Within a LaunchGroup of this thread the launch comes at the end of the group; until then the tensor is kept
// alive and must not be written. Otherwise the launch is queued when this returns: the tensor may be freed,
// and work queued on the stream later may write it.
//
// The first call per stream allocates (1.6 MB of the device's memory, 48 KB of pinned memory); the first call
// per device and type compiles the kernel. Any thread. Throws what torch throws, and std::runtime_error.
PendingScalars cuda_totals(const at::Tensor& tensor, double eps);

// Collects the cuda_totals() calls in its scope. launch() queues them: one launch for each element type and
// some hundreds of tensors. One per thread at a time: an inner group does nothing.
class LaunchGroup {
 public:
  LaunchGroup();
  // Drops requests that were not launched; their values stay NaN.
  ~LaunchGroup();
  LaunchGroup(const LaunchGroup&) = delete;
  LaunchGroup& operator=(const LaunchGroup&) = delete;

  // Throws what cuda_totals() throws.
  void launch();

 private:
  class Collected;
  friend PendingScalars cuda_totals(const at::Tensor& tensor, double eps);

  std::unique_ptr<Collected> collected_;  // null: within another group
};

// Starts to compile the kernel for tensors of this device and element type on another thread, so that no step
// waits for the compilation.
void prepare_cuda_totals(const at::Tensor& like);
// Waits until no kernel is being compiled: the process must not end before.
void finish_preparing_cuda_totals();

// The reason why torch's ops read tensors of a CUDA device; "" if none is known. Any thread.
std::string cuda_totals_problem();

// The reason why numbers cannot be read: work queued on the device now would become part of a CUDA graph,
// which would read the tensor in each replay. "" if it would not. Any thread.
std::string why_captured(const c10::Device& device);

}  // namespace gradmon
