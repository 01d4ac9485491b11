// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "tools/analyse/draw/raster.h"

namespace gradmon {

// The image as the bytes of a PNG file; "" if libpng cannot make it.
std::string png_of(const Raster& raster);

}  // namespace gradmon
