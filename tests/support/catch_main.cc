// SPDX-License-Identifier: Apache-2.0
#include "control/debian_version.h"

#if GRADMON_CATCH2_MAJOR == 2
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
#else
#include <catch2/catch_session.hpp>
int main(int argc, char** argv) { return Catch::Session().run(argc, argv); }
#endif
