// SPDX-License-Identifier: Apache-2.0
// The texts of two files of this folder; CMake makes them.
#pragma once

namespace gradmon {

extern const char* const kTotalsKernelSource;
extern const char* const kTotalsLayoutSource;

}  // namespace gradmon
