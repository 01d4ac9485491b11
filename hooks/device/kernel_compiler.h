// SPDX-License-Identifier: Apache-2.0
// Compiles totals_kernel.cu for a CUDA device with NVRTC, which is found at run time.
#pragma once

#include <cstdint>
#include <string>

namespace gradmon {

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

}  // namespace gradmon
