// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/draw/png.h"

#include <png.h>

#include <vector>

namespace gradmon {

std::string png_of(const Raster& raster) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(raster.width);
  image.height = static_cast<png_uint_32>(raster.height);
  image.format = PNG_FORMAT_RGB_COLORMAP;
  image.colormap_entries = static_cast<png_uint_32>(raster.colours.size());
  std::vector<png_byte> colours;
  for (const Colour& colour : raster.colours)
    colours.insert(colours.end(), {colour.red, colour.green, colour.blue});
  std::string bytes;
  png_alloc_size_t size = 0;
  const void* const pixels = raster.pixels.data();
  if (png_image_write_to_memory(&image, nullptr, &size, 0, pixels, 0, colours.data()) == 0) return "";
  bytes.resize(size);
  if (png_image_write_to_memory(&image, bytes.data(), &size, 0, pixels, 0, colours.data()) == 0) return "";
  bytes.resize(size);
  return bytes;
}

}  // namespace gradmon
