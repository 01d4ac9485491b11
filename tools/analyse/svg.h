// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "tools/analyse/heat_map.h"

namespace gradmon {

// The heat map as an SVG document. Texts must be UTF-8 without control characters.
std::string svg_of(const HeatMap& map);

}  // namespace gradmon
