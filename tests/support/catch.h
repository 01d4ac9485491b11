// SPDX-License-Identifier: Apache-2.0
// Catch2 2 of Debian 12, or Catch2 3 of Debian 13.
#pragma once

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER
