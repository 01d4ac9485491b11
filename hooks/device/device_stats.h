// SPDX-License-Identifier: Apache-2.0
// The statistics of tensor_stats.h by torch's ops, for tensors outside CPU memory: several passes, queued on
// the tensor's device.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "control/vocabulary.h"

namespace gradmon {

// Numbers queued on a device. Keeps no reference to the tensors that they are computed from.
struct DeviceScalars {
  using Values = std::array<double, kOps>;
  // Computes the values from the numbers once they are on the CPU, as doubles; empty: see `why_absent`.
  using Finish = std::optional<Values> (*)(const double* numbers, double elements);

  // kOps numbers, on the device; the last may be unused. Doubles, or floats on a device without double.
  at::Tensor numbers;
  std::optional<c10::Stream> stream;  // that computes them; unset: the device has no streams
  double elements = 0;                // second argument of `finish`
  Finish finish = nullptr;
  const char* why_absent = "";  // why `finish` returns nothing; not owned
  // Not null: the address to which the device writes them, in place of `numbers`. Pinned memory.
  std::shared_ptr<const double> on_host = {};
};

using PendingScalars = std::shared_ptr<const DeviceScalars>;

// The stream carrying the work just queued for the device.
std::optional<c10::Stream> current_stream(const c10::Device& device);

// Packs one to kOps 0-D tensors of one device. Queued on the current stream; does not wait. Throws what
// torch throws.
PendingScalars pack_scalars(const std::vector<at::Tensor>& scalars, double elements,
                            DeviceScalars::Finish finish, const char* why_absent = "");

// The values by Op of six numbers: min, max, sum, norm, count of NaN, count of zeros. min and max are NaN if
// there is a NaN.
std::optional<DeviceScalars::Values> values_of_numbers(const double* numbers, double elements);

// The values by Op. `tensor`: strided, real, not empty, on any device. Queued on the current stream; does not
// wait. Call with gradient mode off. Throws what torch throws.
PendingScalars device_stats(const at::Tensor& tensor, double eps);

// The values of several tensors of one device, each from device_stats(), as the values of one tensor. The
// same rules hold.
PendingScalars folded_stats(const std::vector<PendingScalars>& parts);

// While it exists, this thread's torch calls run torch's own functions alone, without gradients. Active
// Python modes do not see them (such as selective checkpointing, which counts the operators of a forward),
// nor do transformations of torch.func. The arguments must not be wrapper tensors.
class PlainTorch {
 public:
  PlainTorch()
      : guard_(c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot,
                                    c10::DispatchKey::FuncTorchDynamicLayerFrontMode,
                                    c10::DispatchKey::FuncTorchDynamicLayerBackMode,
                                    c10::DispatchKey::FuncTorchVmapMode}) |
               c10::autograd_dispatch_keyset | c10::autocast_dispatch_keyset) {}

 private:
  const c10::impl::ExcludeDispatchKeyGuard guard_;
};

}  // namespace gradmon
