// SPDX-License-Identifier: Apache-2.0
// All differences between Debian 12 (libtorch 1.13, Catch2 2, simdjson 3.0) and Debian 13 (libtorch 2.6,
// Catch2 3, simdjson 3.12). Includes nothing and only tests which headers exist, so any folder may
// include it.
#pragma once

// Tests use `#include GRADMON_CATCH_HEADER`.
#if __has_include(<catch2/catch_all.hpp>)
#define GRADMON_CATCH2_MAJOR 3
#define GRADMON_CATCH_HEADER <catch2/catch_all.hpp>
#else
#define GRADMON_CATCH2_MAJOR 2
#define GRADMON_CATCH_HEADER <catch2/catch.hpp>
#endif
