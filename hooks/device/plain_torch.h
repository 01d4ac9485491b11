// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace gradmon {

// While it exists, this thread's torch calls are torch's own functions alone, without gradients: no mode of
// Python that is active sees them, such as selective checkpointing, which counts the operators of a forward,
// and no transformation of torch.func. Their arguments must be no wrapper tensors.
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
