// SPDX-License-Identifier: Apache-2.0
// Everything that differs between Debian 12 (libtorch 1.13, Catch2 2,
// simdjson 3.0) and Debian 13 (libtorch 2.6, Catch2 3, simdjson 3.12). It only
// asks which headers there are, so that any folder may include it.
#pragma once

// Tests say `#include GRADMON_CATCH_HEADER`.
#if __has_include(<catch2/catch_all.hpp>)
#define GRADMON_CATCH2_MAJOR 3
#define GRADMON_CATCH_HEADER <catch2/catch_all.hpp>
#else
#define GRADMON_CATCH2_MAJOR 2
#define GRADMON_CATCH_HEADER <catch2/catch.hpp>
#endif

// torch 1.13 sends a collective through the dispatcher, where it can be observed,
// by functions declared there; 2.x by its ProcessGroup.
#if __has_include(<torch/csrc/distributed/c10d/Ops.hpp>)
#define GRADMON_C10D_OPS 1
#endif
