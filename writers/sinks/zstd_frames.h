// SPDX-License-Identifier: Apache-2.0
// Whole zstd frames (RFC 8878) one after the other, as compressed CSV files have them: each frame can be read
// as soon as it is written, and a file of several frames is a zstd file.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

struct ZSTD_CCtx_s;

namespace gradmon {

// Makes frames at level 1, with a checksum. One thread at a time.
class FrameCompressor {
 public:
  // One frame with both texts, one after the other. Valid until the next call. The error is the library's: no
  // memory.
  [[nodiscard]] tl::expected<std::string_view, std::string> compress(std::string_view first,
                                                                     std::string_view second);

 private:
  struct Free {
    void operator()(ZSTD_CCtx_s* context) const;
  };
  std::unique_ptr<ZSTD_CCtx_s, Free> context_;  // made at the first call
  std::string frame_;
};

// Gives the text of each whole frame of a file to `take`, in order. Returns the end of the last whole frame;
// a frame that was not written to its end may follow. An error: the file cannot be read, or goes on with
// something else.
[[nodiscard]] tl::expected<off_t, std::string> read_frames(int file,
                                                           const std::function<void(std::string_view)>& take);

}  // namespace gradmon
