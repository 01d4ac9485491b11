// SPDX-License-Identifier: Apache-2.0
#include "hooks/device/cuda_driver.h"

namespace gradmon {
namespace {

constexpr const char* kTorchCuda = "libtorch_cuda.so";
constexpr const char* kCurrentStream = "aoti_torch_get_current_cuda_stream";

struct Found {
  CudaDriver driver;
  std::string why;  // "": complete
};

Found find_all() {
  Found found;
  CudaDriver& driver = found.driver;
  void* const torch = ::dlopen(kTorchCuda, RTLD_LAZY | RTLD_NOLOAD);
  if (torch == nullptr) return {{}, "torch has no CUDA library"};
  void* const library = ::dlopen("libcuda.so.1", RTLD_LAZY);
  if (library == nullptr) return {{}, "there is no CUDA driver (libcuda.so.1)"};
  std::string missing;
  const auto find_function = [&](auto& function, void* in, const char* name) {
    if (!find_symbol(function, in, name) && missing.empty()) missing = name;
  };
  find_function(driver.cuDriverGetVersion, library, "cuDriverGetVersion");
  find_function(driver.cuDeviceGet, library, "cuDeviceGet");
  find_function(driver.cuDeviceGetAttribute, library, "cuDeviceGetAttribute");
  find_function(driver.cuDevicePrimaryCtxRetain, library, "cuDevicePrimaryCtxRetain");
  find_function(driver.cuCtxPushCurrent, library, "cuCtxPushCurrent_v2");
  find_function(driver.cuCtxPopCurrent, library, "cuCtxPopCurrent_v2");
  find_function(driver.cuModuleLoadData, library, "cuModuleLoadData");
  find_function(driver.cuModuleGetFunction, library, "cuModuleGetFunction");
  find_function(driver.cuLaunchKernel, library, "cuLaunchKernel");
  find_function(driver.cuStreamIsCapturing, library, "cuStreamIsCapturing");
  find_function(driver.cuThreadExchangeStreamCaptureMode, library, "cuThreadExchangeStreamCaptureMode");
  find_function(driver.cuGetErrorString, library, "cuGetErrorString");
  if (!missing.empty()) found.why = "the CUDA driver has no " + missing;
  find_function(driver.current_stream, torch, kCurrentStream);
  if (!missing.empty() && found.why.empty()) found.why = "torch has no " + missing;
  return found;
}

const Found& found() {
  static const Found once = find_all();
  return once;
}

}  // namespace

const CudaDriver* CudaDriver::find(std::string* why) {
  const Found& all = found();
  if (why != nullptr) *why = all.why;
  return all.why.empty() ? &all.driver : nullptr;
}

std::string CudaDriver::describe(Status status) const {
  const char* text = nullptr;
  if (cuGetErrorString(status, &text) != 0 || text == nullptr) return "error " + std::to_string(status);
  return text;
}

bool CudaDriver::is_capturing(int device) const {
  void* stream = nullptr;
  if (current_stream(device, &stream) != 0) return false;
  constexpr Status kAnotherStreamIs = 906;  // another stream captures; the default stream's answer
  int status = 0;
  return cuStreamIsCapturing(static_cast<Stream>(stream), &status) == kAnotherStreamIs || status != 0;
}

CaptureUndisturbed::CaptureUndisturbed() {
  if (const CudaDriver* driver = CudaDriver::find()) driver->cuThreadExchangeStreamCaptureMode(&mode_);
}

CaptureUndisturbed::~CaptureUndisturbed() {
  if (const CudaDriver* driver = CudaDriver::find()) driver->cuThreadExchangeStreamCaptureMode(&mode_);
}

std::string torch_cuda_directory() {
  void* const torch = ::dlopen(kTorchCuda, RTLD_LAZY | RTLD_NOLOAD);
  void* const function = torch == nullptr ? nullptr : ::dlsym(torch, kCurrentStream);
  Dl_info info;
  if (function == nullptr || ::dladdr(function, &info) == 0) return "";
  const std::string path = info.dli_fname;
  return path.substr(0, path.rfind('/'));
}

}  // namespace gradmon
