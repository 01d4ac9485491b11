// SPDX-License-Identifier: Apache-2.0
// Where in a Python program its caller is.
#pragma once

#include "hooks/observe/call_site.h"

namespace gradmon {

// From the innermost frame outside torch and gradmon on outwards; empty on a
// thread that runs no Python. Takes the GIL; throws what Python throws.
StackSource python_stacks();

}  // namespace gradmon
