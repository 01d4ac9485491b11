// SPDX-License-Identifier: Apache-2.0
// The statistics of hooks/device as torch operators of Python, for the tests beside it.
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <torch/library.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "hooks/device/cuda_totals.h"
#include "hooks/device/device_fetch.h"
#include "hooks/device/device_stats.h"
#include "hooks/stats/kernels.h"

namespace gradmon {
namespace {

struct Started {
  FetchedBatch batch;
  std::int64_t by_kernel = 0;
};

std::mutex mutex;
std::map<std::int64_t, Started> all_started;  // Guarded by mutex.

std::int64_t keep(Started started) {
  const std::lock_guard lock(mutex);
  const std::int64_t handle = all_started.empty() ? 1 : all_started.rbegin()->first + 1;
  all_started.emplace(handle, std::move(started));
  return handle;
}

// Reads the tensors with the kernel (and with torch's ops what it does not take) or with torch's ops alone.
std::int64_t start(const std::vector<at::Tensor>& tensors, double eps, bool grouped, bool kernel) {
  const c10::NoGradGuard no_grad;
  Started started;
  DeviceBatch batch;
  const auto read_all = [&] {
    for (const at::Tensor& tensor : tensors) {
      if (const std::string why = why_captured(tensor.device()); !why.empty()) throw std::runtime_error(why);
      PendingScalars numbers = kernel ? cuda_totals(tensor, eps) : nullptr;
      started.by_kernel += numbers ? 1 : 0;
      batch.add(numbers ? std::move(numbers) : device_stats(tensor, eps));
    }
  };
  if (grouped) {
    LaunchGroup group;
    read_all();
    group.launch();
  } else {
    read_all();
  }
  started.batch = batch.fetch();
  return keep(std::move(started));
}

bool ready(std::int64_t handle) {
  const std::lock_guard lock(mutex);
  return all_started.at(handle).batch.ready();
}

std::int64_t by_kernel(std::int64_t handle) {
  const std::lock_guard lock(mutex);
  return all_started.at(handle).by_kernel;
}

at::Tensor take(std::int64_t handle) {
  Started started;
  {
    const std::lock_guard lock(mutex);
    started = std::move(all_started.at(handle));
    all_started.erase(handle);
  }
  const auto values = started.batch.values();
  at::Tensor rows =
      at::empty({static_cast<std::int64_t>(values.size()), static_cast<std::int64_t>(kOps)}, at::kDouble);
  double* at = rows.data_ptr<double>();
  for (const auto& row : values) at = std::copy(row.value().begin(), row.value().end(), at);
  return rows;
}

// min, max, sum, sum of squares, NaN, zeros of a contiguous tensor in CPU memory, by the scalar loop.
at::Tensor reference(const at::Tensor& tensor, double eps) {
  const auto type = tensor.scalar_type() == at::kFloat    ? FloatType::float32
                    : tensor.scalar_type() == at::kDouble ? FloatType::float64
                    : tensor.scalar_type() == at::kHalf   ? FloatType::float16
                                                          : FloatType::bfloat16;
  const PartialStats stats =
      reference_stats(type, tensor.data_ptr(), static_cast<std::size_t>(tensor.numel()), eps);
  at::Tensor row = at::empty({6}, at::kDouble);
  const std::array<double, 6> values{stats.min,
                                     stats.max,
                                     stats.sum,
                                     stats.sum_squares,
                                     static_cast<double>(stats.nans),
                                     static_cast<double>(stats.zeros)};
  std::copy(values.begin(), values.end(), row.data_ptr<double>());
  return row;
}

std::vector<std::string> ops() {
  std::vector<std::string> names;
  for (const Statistic& statistic : kStatistics) names.emplace_back(statistic.name);
  return names;
}

TORCH_LIBRARY(gradmon_device, library) {
  library.def("start(Tensor[] tensors, float eps, bool grouped, bool kernel) -> int", start);
  library.def("ready(int handle) -> bool", ready);
  library.def("by_kernel(int handle) -> int", by_kernel);
  library.def("take(int handle) -> Tensor", take);
  library.def("reference(Tensor tensor, float eps) -> Tensor", reference);
  library.def("ops() -> str[]", ops);
  library.def("problem() -> str", cuda_totals_problem);
}

}  // namespace
}  // namespace gradmon
