// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace gradmon {

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
