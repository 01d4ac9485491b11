// SPDX-License-Identifier: Apache-2.0
// Takes tensors of Python classes that wrap others apart: DTensor, AsyncCollectiveTensor.
#pragma once

namespace gradmon {

// Lets hooks read the tensor inside, by attributes alone: `_local_tensor` of a DTensor, and what an
// AsyncCollectiveTensor gives when it has been waited for. Any other class is not applicable.
void read_python_wrappers();
// Forgets the placements seen so far, which hold device meshes. With the GIL.
void forget_python_wrappers();

}  // namespace gradmon
