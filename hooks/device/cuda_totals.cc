// SPDX-License-Identifier: Apache-2.0
#include "hooks/device/cuda_totals.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "control/signals_blocked.h"
#include "hooks/device/cuda_driver.h"
#include "hooks/device/totals_layout.h"
#include "hooks/device/zero_threshold.h"

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

using device::kTileBytes;
using device::TensorPart;
using device::Totals;

constexpr std::size_t kMostTensors = GRADMON_TENSORS;
constexpr unsigned kMostLaunchChunks = 32768;
constexpr unsigned kResultsInBlock = 1024;
constexpr std::size_t kMostLanes = 64;
static_assert(kMostLaunchChunks >= device::kMostChunks);

// Element types by their names in totals_kernel.cu.
constexpr std::array<const char*, 8> kTypes = {"Float32",    "Float64",       "Float16",
                                               "Bfloat16",   "Float8E4m3fn",  "Float8E4m3fnuz",
                                               "Float8E5m2", "Float8E5m2fnuz"};

std::optional<std::size_t> type_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return 0;
    case at::kDouble:
      return 1;
    case at::kHalf:
      return 2;
    case at::kBFloat16:
      return 3;
    default:
      break;
  }
  if (tensor.element_size() != 1) return std::nullopt;
  // By name, "Float8_e4m3fn", because older versions of torch have fewer types.
  const std::string name = c10::toString(tensor.scalar_type());
  for (std::size_t i = 4; i < kTypes.size(); ++i) {
    const std::string own = kTypes[i];
    if (name == "Float8_e" + own.substr(7)) return i;
  }
  return std::nullopt;
}

// Results of some readings; each reading keeps the block alive until it ends.
struct ResultBlock {
  at::Tensor memory;  // pinned
  unsigned used = 0;

  Totals* results() const { return static_cast<Totals*>(memory.data_ptr()); }
};

// The kernels for one element type on one device.
struct Kernels {
  CudaDriver::Context context = nullptr;
  CudaDriver::Function one = nullptr;
  CudaDriver::Function many = nullptr;
  unsigned tensors = 0;  // that one launch of `many` takes
  std::string problem;   // "": they can be launched
};

class ContextInScope {
 public:
  ContextInScope(const CudaDriver& driver, CudaDriver::Context context) : driver_(driver) {
    driver_.cuCtxPushCurrent(context);
  }
  ~ContextInScope() {
    CudaDriver::Context before = nullptr;
    driver_.cuCtxPopCurrent(&before);
  }
  ContextInScope(const ContextInScope&) = delete;
  ContextInScope& operator=(const ContextInScope&) = delete;

 private:
  const CudaDriver& driver_;
};

void require(const CudaDriver& driver, CudaDriver::Status status, const std::string& what) {
  if (status != 0) throw std::runtime_error(what + ": " + driver.describe(status));
}

Kernels load_kernels(const CudaDriver& driver, int ordinal, std::size_t type) {
  Kernels kernels;
  int device = 0;
  int major = 0;
  int minor = 0;
  int version = 0;
  require(driver, driver.cuDeviceGet(&device, ordinal), "the CUDA device");
  require(driver, driver.cuDeviceGetAttribute(&major, CudaDriver::kComputeMajor, device), "its capability");
  require(driver, driver.cuDeviceGetAttribute(&minor, CudaDriver::kComputeMinor, device), "its capability");
  require(driver, driver.cuDriverGetVersion(&version), "the driver's version");
  CompiledKernel compiled = compile_totals_kernel(kTypes[type], major, minor, version);
  if (compiled.image.empty()) return {nullptr, nullptr, nullptr, 0, compiled.why};
  kernels.tensors = std::min<unsigned>(compiled.tensors, kMostTensors);
  require(driver, driver.cuDevicePrimaryCtxRetain(&kernels.context, device), "the device's context");
  const ContextInScope scope(driver, kernels.context);
  CudaDriver::Module module = nullptr;
  if (driver.cuModuleLoadData(&module, compiled.image.data()) != 0) {  // The cached image may be damaged.
    compiled = compile_totals_kernel(kTypes[type], major, minor, version, KeptKernel::ignored);
    if (compiled.image.empty()) return {nullptr, nullptr, nullptr, 0, compiled.why};
    require(driver, driver.cuModuleLoadData(&module, compiled.image.data()), "loading the kernel");
  }
  require(driver, driver.cuModuleGetFunction(&kernels.one, module, "gradmon_one"), "gradmon_one");
  require(driver, driver.cuModuleGetFunction(&kernels.many, module, "gradmon_many"), "gradmon_many");
  return kernels;
}

// Tensors of one type that wait for their launch.
struct Queue {
  const Kernels* kernels = nullptr;  // of the type; null: none is queued
  std::vector<TensorPart> parts;
  unsigned chunks = 0;
  std::vector<at::Tensor> tensors;  // keeps them alive until the launch

  void clear() {
    parts.clear();
    tensors.clear();
    chunks = 0;
  }
};

// The memory to launch on one stream. A stream runs its work in order, so its launches share the memory.
struct Lane {
  c10::Device device;
  c10::Stream stream;
  CudaDriver::Stream handle = nullptr;
  at::Tensor workspace;  // kMostLaunchChunks partial results, then kMostTensors counters
  std::vector<std::shared_ptr<ResultBlock>> blocks;
  std::shared_ptr<ResultBlock> block;  // the one in use

  Totals* partials() const { return static_cast<Totals*>(workspace.data_ptr()); }
  unsigned* finished() const { return reinterpret_cast<unsigned*>(partials() + kMostLaunchChunks); }
};

void take_free_block(Lane& lane) {
  for (const auto& block : lane.blocks) {
    if (block.use_count() > (block == lane.block ? 2 : 1)) continue;
    block->used = 0;
    lane.block = block;
    return;
  }
  auto block = std::make_shared<ResultBlock>();
  const auto bytes = static_cast<std::int64_t>(kResultsInBlock * sizeof(Totals));
  block->memory = at::empty({bytes}, at::TensorOptions(at::kByte).pinned_memory(true));
  lane.block = lane.blocks.emplace_back(std::move(block));
}

std::optional<DeviceScalars::Values> values_of_totals(const double* numbers, double elements) {
  Totals totals;
  static_assert(sizeof totals == 6 * sizeof(double));
  std::copy_n(numbers, 6, &totals.min);
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  if (totals.nans > 0) totals.min = totals.max = kNan;
  const std::array<double, 6> found{totals.min,  totals.max,  totals.sum, std::sqrt(totals.sum_squares),
                                    totals.nans, totals.zeros};
  return values_of_numbers(found.data(), elements);
}

TensorPart part_of(const at::Tensor& tensor, unsigned result) {
  TensorPart part{};
  part.data = tensor.data_ptr();
  part.count = static_cast<unsigned long long>(tensor.numel());
  part.result = result;
  device::divide(part, static_cast<unsigned>(tensor.element_size()));
  return part;
}

// One per process. Never destroyed: the driver may be unloaded first.
class Engine {
 public:
  static Engine& instance() {
    static auto* const engine = new Engine;
    return *engine;
  }

  std::shared_future<Kernels> prepare(int ordinal, std::size_t type) {
    const std::lock_guard lock(mutex_);
    auto& loading = loading_[{ordinal, type}];
    const SignalsBlocked blocked;  // in the new thread
    if (!loading.valid())
      loading = std::async(std::launch::async, [ordinal, type] { return load(ordinal, type); }).share();
    return loading;
  }

  void finish_preparing() const {
    std::vector<std::shared_future<Kernels>> all;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [key, loading] : loading_) all.push_back(loading);
    }
    for (const auto& loading : all) loading.wait();
  }

  std::string problem() const {
    const std::lock_guard lock(problem_mutex_);
    return problem_;
  }

  // Null: torch's ops must read such tensors.
  const Kernels* kernels(int ordinal, std::size_t type) {
    const std::shared_future<Kernels> loading = prepare(ordinal, type);
    const Kernels& kernels = loading.get();  // lives as long as the engine
    if (kernels.problem.empty()) return &kernels;
    const std::lock_guard lock(problem_mutex_);
    problem_ = kernels.problem;
    return nullptr;
  }

  // Null: there are too many streams.
  Lane* lane(const c10::Device& device) {
    const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
    const auto key = std::make_pair(device.index(), stream.id());
    {
      const std::lock_guard lock(mutex_);
      const auto known = lanes_.find(key);
      if (known != lanes_.end()) return known->second.get();
      if (lanes_.size() >= kMostLanes) return nullptr;
    }
    auto lane = new_lane(device, stream);  // Without the lock: torch's allocator may call into Python.
    const std::lock_guard lock(mutex_);
    return lane ? lanes_.try_emplace(key, std::move(lane)).first->second.get() : nullptr;
  }

  // The place for the result of one more tensor; NaN until its launch.
  std::pair<std::shared_ptr<ResultBlock>, unsigned> take_place(Lane& lane) {
    const std::lock_guard lock(mutex_);
    if (!lane.block || lane.block->used == kResultsInBlock) {
      const PlainTorch plain;
      const CaptureUndisturbed undisturbed;
      take_free_block(lane);
    }
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
    lane.block->results()[lane.block->used] = {kNan, kNan, kNan, kNan, kNan, kNan};
    return {lane.block, lane.block->used++};
  }

  void launch(const Kernels& kernels, const Lane& lane, Queue& queue, const ResultBlock& block, double eps) {
    const std::lock_guard lock(mutex_);
    if (queue.parts.size() == 1) {
      launch_as(one_, kernels.one, kernels, lane, queue, block, eps);
    } else {
      launch_as(many_, kernels.many, kernels, lane, queue, block, eps);
    }
    queue.clear();
  }

 private:
  static Kernels load(int ordinal, std::size_t type) {
    try {
      std::string why;
      const CudaDriver* const driver = CudaDriver::find(&why);
      if (driver == nullptr) return {nullptr, nullptr, nullptr, 0, why};
      const CaptureUndisturbed undisturbed;
      return load_kernels(*driver, ordinal, type);
    } catch (const std::exception& error) {
      return {nullptr, nullptr, nullptr, 0, error.what()};
    }
  }

  static std::unique_ptr<Lane> new_lane(const c10::Device& device, const c10::Stream& stream) {
    void* handle = nullptr;
    if (CudaDriver::find()->current_stream(device.index(), &handle) != 0) return nullptr;
    const PlainTorch plain;
    const CaptureUndisturbed undisturbed;
    const auto bytes =
        static_cast<std::int64_t>(kMostLaunchChunks * sizeof(Totals) + kMostTensors * sizeof(unsigned));
    at::Tensor workspace = at::zeros({bytes}, at::TensorOptions(at::kByte).device(device));
    return std::make_unique<Lane>(
        Lane{device, stream, static_cast<CudaDriver::Stream>(handle), std::move(workspace), {}, {}});
  }

  template <typename Launch>
  static void launch_as(Launch& launch, CudaDriver::Function function, const Kernels& kernels,
                        const Lane& lane, const Queue& queue, const ResultBlock& block, double eps) {
    launch.results = block.results();
    launch.partials = lane.partials();
    launch.finished = lane.finished();
    launch.eps = eps;
    launch.threshold = float_threshold(eps);
    launch.tensors = static_cast<unsigned>(queue.parts.size());
    std::copy(queue.parts.begin(), queue.parts.end(), launch.parts);
    const CudaDriver& driver = *CudaDriver::find();
    const ContextInScope scope(driver, kernels.context);
    void* parameters[] = {&launch};
    require(driver,
            driver.cuLaunchKernel(function, queue.chunks, 1, 1, device::kThreads, 1, 1, 0, lane.handle,
                                  parameters, nullptr),
            "launching the kernel of the statistics");
  }

  mutable std::mutex problem_mutex_;
  std::string problem_;  // Guarded by problem_mutex_: readers must not wait for a launch.
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::map<std::pair<int, std::size_t>, std::shared_future<Kernels>> loading_;  // by device and type
  std::map<std::pair<c10::DeviceIndex, c10::StreamId>, std::unique_ptr<Lane>> lanes_;
  device::Launch<1> one_{};
  device::Launch<kMostTensors> many_{};
};

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

class LaunchGroup::Collected {
 public:
  void add(const Kernels& kernels, Lane& lane, std::size_t type, const at::Tensor& tensor, double eps,
           const std::pair<std::shared_ptr<ResultBlock>, unsigned>& place) {
    if (lane_ != nullptr && (lane_ != &lane || eps != eps_ || block_ != place.first)) launch();
    lane_ = &lane;
    eps_ = eps;
    block_ = place.first;
    TensorPart part = part_of(tensor, place.second);
    Queue& queue = queues_[type];
    queue.kernels = &kernels;
    if (!queue.parts.empty() &&
        (queue.parts.size() == kernels.tensors || queue.chunks + part.chunks > kMostLaunchChunks))
      Engine::instance().launch(kernels, lane, queue, *block_, eps_);
    part.first_chunk = queue.chunks;
    queue.chunks += part.chunks;
    queue.parts.push_back(part);
    queue.tensors.push_back(tensor);
  }

  void launch() {
    for (Queue& queue : queues_) {
      if (!queue.parts.empty()) Engine::instance().launch(*queue.kernels, *lane_, queue, *block_, eps_);
    }
    lane_ = nullptr;
    block_.reset();
  }

  static thread_local Collected* current;

 private:
  Lane* lane_ = nullptr;  // null: nothing is queued
  double eps_ = 0;
  std::shared_ptr<ResultBlock> block_;
  std::array<Queue, kTypes.size()> queues_;
};

thread_local LaunchGroup::Collected* LaunchGroup::Collected::current = nullptr;

LaunchGroup::LaunchGroup() {
  if (Collected::current != nullptr) return;
  collected_ = std::make_unique<Collected>();
  Collected::current = collected_.get();
}

LaunchGroup::~LaunchGroup() {
  if (collected_) Collected::current = nullptr;
}

void LaunchGroup::launch() {
  if (collected_) collected_->launch();
}

PendingScalars cuda_totals(const at::Tensor& tensor, double eps) {
  const auto type = type_of(tensor);
  if (!type || !tensor.unsafeGetTensorImpl()->is_non_overlapping_and_dense()) return nullptr;
  Engine& engine = Engine::instance();
  const Kernels* const kernels = engine.kernels(tensor.device().index(), *type);
  Lane* const lane = kernels != nullptr ? engine.lane(tensor.device()) : nullptr;
  if (lane == nullptr) return nullptr;
  const auto place = engine.take_place(*lane);
  if (LaunchGroup::Collected::current != nullptr) {
    LaunchGroup::Collected::current->add(*kernels, *lane, *type, tensor, eps, place);
  } else {
    Queue queue;
    queue.parts.push_back(part_of(tensor, place.second));
    queue.chunks = queue.parts.front().chunks;
    engine.launch(*kernels, *lane, queue, *place.first, eps);
  }
  DeviceScalars scalars;
  scalars.stream = lane->stream;
  scalars.elements = static_cast<double>(tensor.numel());
  scalars.finish = values_of_totals;
  scalars.on_host = {place.first, &place.first->results()[place.second].min};
  return std::make_shared<const DeviceScalars>(std::move(scalars));
}

void prepare_cuda_totals(const at::Tensor& like) {
  if (!like.is_cuda()) return;
  if (const auto type = type_of(like)) Engine::instance().prepare(like.device().index(), *type);
}

void finish_preparing_cuda_totals() { Engine::instance().finish_preparing(); }

std::string cuda_totals_problem() { return Engine::instance().problem(); }

std::string why_captured(const c10::Device& device) {
  const CudaDriver* const driver = device.is_cuda() ? CudaDriver::find() : nullptr;
  if (driver == nullptr || !driver->is_capturing(device.index())) return "";
  return "it is captured into a CUDA graph, whose replays run no hooks";
}

}  // namespace gradmon
