// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace gradmon {

// The text of CONFIG.md: every key of the config file, from the tables of config_schema.h. Pure.
std::string config_page();

}  // namespace gradmon
