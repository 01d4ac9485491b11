// SPDX-License-Identifier: Apache-2.0
// The Python call stack of the calling thread.
#pragma once

#include "hooks/observe/call_site.h"

namespace gradmon {

// The returned function lists the frames from the innermost one outside torch and gradmon outwards;
// empty on a thread that runs no Python. It takes the GIL and throws what Python throws.
StackSource python_stacks();

}  // namespace gradmon
