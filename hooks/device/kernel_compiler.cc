// SPDX-License-Identifier: Apache-2.0
#include "hooks/device/kernel_compiler.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "hooks/device/cuda_driver.h"
#include "hooks/device/kernel_source.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;

constexpr int kLeastMajor = 7;  // The kernel's loads bypass the L1 cache, which older devices cannot say.
constexpr int kLargeParameters = 12010;  // CUDA 12.1 took the limit of 4 KB from kernel parameters.
constexpr unsigned kTensors = 1000;
constexpr unsigned kTensorsIn4KB = 120;

struct Nvrtc {
  using Status = int;
  using Program = struct _nvrtcProgram*;

  Status (*nvrtcVersion)(int* major, int* minor) = nullptr;
  Status (*nvrtcCreateProgram)(Program*, const char* source, const char* name, int headers,
                               const char* const* header_sources, const char* const* header_names) = nullptr;
  Status (*nvrtcDestroyProgram)(Program*) = nullptr;
  Status (*nvrtcCompileProgram)(Program, int options, const char* const*) = nullptr;
  Status (*nvrtcGetCUBINSize)(Program, std::size_t*) = nullptr;
  Status (*nvrtcGetCUBIN)(Program, char*) = nullptr;
  Status (*nvrtcGetProgramLogSize)(Program, std::size_t*) = nullptr;
  Status (*nvrtcGetProgramLog)(Program, char*) = nullptr;
  int version = 0;  // 13000: 13.0; 0: not found
};

std::string text_of_version(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// NVRTC opens the builtins by name, and finds them in its own folder only if they are loaded already.
void load_builtins(const Nvrtc& nvrtc) {
  Dl_info info;
  if (::dladdr(reinterpret_cast<void*>(nvrtc.nvrtcVersion), &info) == 0) return;
  const fs::path folder = fs::path(info.dli_fname).parent_path();
  ::dlopen((folder / ("libnvrtc-builtins.so." + text_of_version(nvrtc.version))).c_str(), RTLD_LAZY);
}

bool find_functions(Nvrtc& nvrtc, void* library) {
  int major = 0;
  int minor = 0;
  const bool found = find_symbol(nvrtc.nvrtcVersion, library, "nvrtcVersion") &&
                     find_symbol(nvrtc.nvrtcCreateProgram, library, "nvrtcCreateProgram") &&
                     find_symbol(nvrtc.nvrtcDestroyProgram, library, "nvrtcDestroyProgram") &&
                     find_symbol(nvrtc.nvrtcCompileProgram, library, "nvrtcCompileProgram") &&
                     find_symbol(nvrtc.nvrtcGetCUBINSize, library, "nvrtcGetCUBINSize") &&
                     find_symbol(nvrtc.nvrtcGetCUBIN, library, "nvrtcGetCUBIN") &&
                     find_symbol(nvrtc.nvrtcGetProgramLogSize, library, "nvrtcGetProgramLogSize") &&
                     find_symbol(nvrtc.nvrtcGetProgramLog, library, "nvrtcGetProgramLog") &&
                     nvrtc.nvrtcVersion(&major, &minor) == 0;
  nvrtc.version = found ? 1000 * major + 10 * minor : 0;
  if (found) load_builtins(nvrtc);
  return found;
}

// Tries torch's own first: its caffe2_nvrtc is linked to that library, wherever it lies.
Nvrtc find_nvrtc() {
  const std::string torch = torch_cuda_directory();
  std::vector<std::string> names;
  if (!torch.empty()) names.push_back(torch + "/libcaffe2_nvrtc.so");
  for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2"}) names.emplace_back(name);
  Nvrtc nvrtc;
  for (const std::string& name : names) {
    void* const library = ::dlopen(name.c_str(), RTLD_LAZY);
    if (library != nullptr && find_functions(nvrtc, library)) return nvrtc;
  }
  return {};
}

// Deletes itself.
class Program {
 public:
  explicit Program(const Nvrtc& nvrtc) : nvrtc_(nvrtc) {
    const char* const header = kTotalsLayoutSource;
    const char* const header_name = "hooks/device/totals_layout.h";
    if (nvrtc_.nvrtcCreateProgram(&program_, kTotalsKernelSource, "totals_kernel.cu", 1, &header,
                                  &header_name) != 0)
      program_ = nullptr;
  }
  ~Program() {
    if (program_ != nullptr) nvrtc_.nvrtcDestroyProgram(&program_);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  bool compile(const std::vector<std::string>& options) const {
    std::vector<const char*> texts;
    for (const std::string& option : options) texts.push_back(option.c_str());
    return program_ != nullptr &&
           nvrtc_.nvrtcCompileProgram(program_, static_cast<int>(texts.size()), texts.data()) == 0;
  }

  std::string image() const { return text(nvrtc_.nvrtcGetCUBINSize, nvrtc_.nvrtcGetCUBIN); }
  std::string log() const { return text(nvrtc_.nvrtcGetProgramLogSize, nvrtc_.nvrtcGetProgramLog); }

 private:
  std::string text(Nvrtc::Status (*size_of)(Nvrtc::Program, std::size_t*),
                   Nvrtc::Status (*get)(Nvrtc::Program, char*)) const {
    std::size_t size = 0;
    if (program_ == nullptr || size_of(program_, &size) != 0) return "";
    std::string bytes(size, '\0');
    return get(program_, bytes.data()) == 0 ? bytes : "";
  }

  const Nvrtc& nvrtc_;
  Nvrtc::Program program_ = nullptr;
};

// The cache must hold only results of this version of the source.
std::string hash_of_source() {
  std::uint64_t hash = 14695981039346656037U;  // FNV-1a
  for (const char* source : {kTotalsLayoutSource, kTotalsKernelSource}) {
    for (; *source != '\0'; ++source) hash = (hash ^ static_cast<unsigned char>(*source)) * 1099511628211U;
  }
  std::ostringstream text;
  text << std::hex << hash;
  return text.str();
}

fs::path cache_folder() {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache == '/') return fs::path(cache) / "gradmon";
  const char* const home = std::getenv("HOME");
  return home != nullptr && *home == '/' ? fs::path(home) / ".cache" / "gradmon" : fs::path();
}

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return file ? bytes.str() : "";
}

// Several threads, processes and hosts may do this at once. A failed write only costs time.
void keep_file(const fs::path& path, const std::string& bytes) {
  std::error_code failed;
  fs::create_directories(path.parent_path(), failed);
  std::string draft = path.string() + ".XXXXXX";
  const int file = ::mkstemp(draft.data());
  if (file < 0) return;
  const bool whole = ::write(file, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
  const bool closed = ::close(file) == 0;
  if (whole && closed) fs::rename(draft, path, failed);
  if (!whole || !closed || failed) fs::remove(draft, failed);
}

}  // namespace

CompiledKernel compile_totals_kernel(const std::string& type, int major, int minor, int driver_version,
                                     KeptKernel use) {
  CompiledKernel kernel;
  const std::string architecture = std::to_string(10 * major + minor);
  if (major < kLeastMajor) {
    kernel.why = "the device is too old (compute capability " + std::to_string(major) + "." +
                 std::to_string(minor) + ")";
    return kernel;
  }
  static const Nvrtc nvrtc = find_nvrtc();
  if (nvrtc.version == 0) {
    kernel.why = "NVRTC is not found (libnvrtc)";
    return kernel;
  }
  if (nvrtc.version / 1000 > driver_version / 1000) {
    kernel.why = "the driver (CUDA " + text_of_version(driver_version) + ") is older than NVRTC " +
                 text_of_version(nvrtc.version);
    return kernel;
  }
  kernel.tensors =
      nvrtc.version >= kLargeParameters && driver_version >= kLargeParameters ? kTensors : kTensorsIn4KB;
  const fs::path folder = cache_folder();
  const fs::path kept = folder / ("totals-" + hash_of_source() + "-" + type + "-sm_" + architecture + "-" +
                                  std::to_string(nvrtc.version) + "-" + std::to_string(kernel.tensors));
  if (!folder.empty() && use == KeptKernel::used) kernel.image = read_file(kept);
  if (!kernel.image.empty()) return kernel;
  const Program program(nvrtc);
  if (program.compile({"--gpu-architecture=sm_" + architecture, "--std=c++17", "-DGRADMON_TYPE=" + type,
                       "-DGRADMON_TENSORS=" + std::to_string(kernel.tensors)}))
    kernel.image = program.image();
  if (kernel.image.empty()) kernel.why = "NVRTC does not compile the kernel: " + program.log();
  if (!kernel.image.empty() && !folder.empty()) keep_file(kept, kernel.image);
  return kernel;
}

}  // namespace gradmon
