// SPDX-License-Identifier: Apache-2.0
// Reads DLPack's description of an array, without torch's from_dlpack(), which ends the process for a
// negative stride. Any thread.
#pragma once

#include <string>
#include <tl/expected.hpp>

#include "hooks/arrays/dl_tensor.h"
#include "hooks/arrays/foreign_array.h"

namespace gradmon {

// The array, or the reason why it cannot be read. The fields may hold anything, but the pointers to shape and
// strides must be null or readable for `ndim` numbers. memory_of() accepts the array.
tl::expected<ForeignArray, std::string> array_of(const DlTensor& tensor);

// The same behind the pointer of a capsule, which may be any address: the pointers are checked, too.
enum class DlVersion : bool { before_1, since_1 };
tl::expected<ForeignArray, std::string> array_behind(const void* capsule_pointer, DlVersion version);

}  // namespace gradmon
