// SPDX-License-Identifier: Apache-2.0
// What a machine without a CUDA device can test: the kernel's source, and what is said where something is
// missing.
#include "hooks/device/kernel_compiler.h"

#include <ATen/ops/zeros.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "control/debian_version.h"
#include "hooks/device/cuda_driver.h"
#include "hooks/device/cuda_totals.h"
#include "hooks/device/kernel_source.h"
#include "tests/support/temporary_directory.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::size_t files_in(const fs::path& folder) {
  if (!fs::exists(folder)) return 0;
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

TEST_CASE("the library has the text of the kernel and of its layout") {
  const fs::path folder = fs::path(GRADMON_SOURCE) / "hooks/device";
  CHECK(kTotalsKernelSource == text_of(folder / "totals_kernel.cu"));
  CHECK(kTotalsLayoutSource == text_of(folder / "totals_layout.h"));
}

TEST_CASE("a device that is too old is said to be") {
  const CompiledKernel kernel = compile_totals_kernel("Float32", 6, 1, 13000);
  CHECK(kernel.image.empty());
  CHECK(kernel.why == "the device is too old (compute capability 6.1)");
}

TEST_CASE("the kernel is compiled once and kept, or it is said what is missing") {
  const TemporaryDirectory scratch;
  ::setenv("XDG_CACHE_HOME", scratch.path().c_str(), 1);
  const CompiledKernel kernel = compile_totals_kernel("Bfloat16", 9, 0, 13000);
  const fs::path folder = scratch.path() / "gradmon";
  if (kernel.image.empty()) {
    INFO(kernel.why);
    CHECK((kernel.why == "NVRTC is not found (libnvrtc)" ||
           kernel.why.find("older than NVRTC") != std::string::npos));
    CHECK(files_in(folder) == 0);
  } else {
    CHECK(kernel.image.substr(1, 3) == "ELF");
    REQUIRE(files_in(folder) == 1);
    CHECK(text_of(fs::directory_iterator(folder)->path()) == kernel.image);
    const CompiledKernel again = compile_totals_kernel("Bfloat16", 9, 0, 13000);
    CHECK(again.image == kernel.image);
    CHECK(compile_totals_kernel("Float32", 9, 0, 13000).image != kernel.image);
    CHECK(files_in(folder) == 2);
    const CompiledKernel refused = compile_totals_kernel("NoSuchType", 9, 0, 13000);
    CHECK(refused.image.empty());
    CHECK(refused.why.find("NoSuchType") != std::string::npos);
  }
  ::unsetenv("XDG_CACHE_HOME");
}

TEST_CASE("without CUDA the driver says what is missing and nothing is disturbed") {
  std::string why;
  if (CudaDriver::find(&why) != nullptr) return;  // there is a device: tests/gpu
  CHECK_FALSE(why.empty());
  const CaptureUndisturbed undisturbed;
  const at::Tensor tensor = at::zeros({3});
  CHECK(why_captured(tensor.device()).empty());
  prepare_cuda_totals(tensor);
  finish_preparing_cuda_totals();
  CHECK(cuda_totals_problem().empty());
  LaunchGroup outer;
  LaunchGroup inner;
  inner.launch();
  outer.launch();
}

}  // namespace
}  // namespace gradmon
