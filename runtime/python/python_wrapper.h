// SPDX-License-Identifier: Apache-2.0
// Takes apart tensors of Python classes that wrap others: those of the table in python_wrapper.cc.
#pragma once

namespace gradmon {

// Lets hooks read the content of a wrapper, by attributes alone: `_local_tensor` of a DTensor, the result of
// a waited AsyncCollectiveTensor, and numbers of low precision. Any other class is not applicable.
void read_python_wrappers();
// Forgets the placements seen so far, which hold device meshes. With the GIL.
void forget_python_wrappers();

}  // namespace gradmon
