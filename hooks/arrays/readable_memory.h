// SPDX-License-Identifier: Apache-2.0
// Checks that memory of another library can be read. Any thread.
#pragma once

#include "hooks/arrays/foreign_array.h"

namespace gradmon {

// Asks the kernel whether every page is mapped, and whether a sample of the pages may be read: each page of
// the first 4 MiB, then one of every 2 MiB, and the last page. This finds wrong addresses and memory that has
// been freed to the system. It cannot find memory that is mapped for something else. Another thread may unmap
// the memory after the answer.
bool is_readable(MemoryRange range) noexcept;

}  // namespace gradmon
