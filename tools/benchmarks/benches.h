// SPDX-License-Identifier: Apache-2.0
// What can be measured; each in the file of its name.
#pragma once

#include "tools/benchmarks/figure.h"

namespace gradmon {

Bench idle_step();     // what step() costs while nothing is asked for
Bench tensor_reads();  // the numbers of one tensor, against a read and against torch

}  // namespace gradmon
