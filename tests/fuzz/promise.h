// SPDX-License-Identifier: Apache-2.0
// The assertion of the fuzz targets. A broken promise is a crash, which the fuzzer reports with the input.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace gradmon::fuzz {

inline void promise(bool kept, const char* what) {
  if (kept) return;
  std::fprintf(stderr, "broken promise: %s\n", what);
  std::abort();
}

}  // namespace gradmon::fuzz
