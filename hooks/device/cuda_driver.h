// SPDX-License-Identifier: Apache-2.0
// The functions of the CUDA driver and of torch's CUDA library that gradmon calls. They are found at run
// time, so that gradmon builds and runs without CUDA.
#pragma once

#include <dlfcn.h>

#include <string>

namespace gradmon {

struct CudaDriver {
  using Status = int;  // CUresult; 0: done
  using Context = struct CUctx_st*;
  using Module = struct CUmod_st*;
  using Function = struct CUfunc_st*;
  using Stream = struct CUstream_st*;

  // Arguments of cuDeviceGetAttribute and cuThreadExchangeStreamCaptureMode.
  static constexpr int kComputeMajor = 75;
  static constexpr int kComputeMinor = 76;
  static constexpr int kCaptureRelaxed = 2;

  Status (*cuDriverGetVersion)(int*) = nullptr;
  Status (*cuDeviceGet)(int* device, int ordinal) = nullptr;
  Status (*cuDeviceGetAttribute)(int*, int attribute, int device) = nullptr;
  Status (*cuDevicePrimaryCtxRetain)(Context*, int device) = nullptr;
  Status (*cuCtxPushCurrent)(Context) = nullptr;
  Status (*cuCtxPopCurrent)(Context*) = nullptr;
  Status (*cuModuleLoadData)(Module*, const void* image) = nullptr;
  Status (*cuModuleGetFunction)(Function*, Module, const char* name) = nullptr;
  Status (*cuLaunchKernel)(Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                           unsigned shared, Stream, void** parameters, void** extra) = nullptr;
  Status (*cuStreamIsCapturing)(Stream, int* status) = nullptr;
  Status (*cuThreadExchangeStreamCaptureMode)(int* mode) = nullptr;
  Status (*cuGetErrorString)(Status, const char**) = nullptr;
  // From torch's C interface: the thread's current stream on the device.
  int (*current_stream)(int device, void** stream) = nullptr;

  // Null: a part is missing, and `why` says which. Searches once per process. Any thread.
  static const CudaDriver* find(std::string* why = nullptr);

  std::string describe(Status status) const;
  // True if work queued on the thread's current stream of the device would become part of a CUDA graph.
  bool is_capturing(int device) const;
};

// Within its scope the thread may make calls that would break another thread's capture: query an event,
// allocate memory.
class CaptureUndisturbed {
 public:
  CaptureUndisturbed();
  ~CaptureUndisturbed();
  CaptureUndisturbed(const CaptureUndisturbed&) = delete;
  CaptureUndisturbed& operator=(const CaptureUndisturbed&) = delete;

 private:
  int mode_ = CudaDriver::kCaptureRelaxed;
};

// Sets the pointer to the library's function of that name; false, and null, if the function is missing.
template <typename F>
bool find_symbol(F*& function, void* library, const char* name) {
  function = reinterpret_cast<F*>(::dlsym(library, name));
  return function != nullptr;
}

// Directory of the torch library that is loaded for CUDA; "" if there is none.
std::string torch_cuda_directory();

}  // namespace gradmon
