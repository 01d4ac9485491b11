// SPDX-License-Identifier: Apache-2.0
// Whether memory that another library has named can be read. Any thread.
#pragma once

#include "hooks/arrays/foreign_array.h"

namespace gradmon {

// Asks the kernel: whether every page is mapped and, of each 2 MiB, of the first 4 MiB and of the last page,
// whether it may be read. It finds addresses that are wrong or have been freed to the system. It cannot find
// memory that is mapped for something else. Another thread may unmap the memory after the answer.
bool is_readable(MemoryRange range) noexcept;

}  // namespace gradmon
