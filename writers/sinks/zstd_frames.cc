// SPDX-License-Identifier: Apache-2.0
#include "writers/sinks/zstd_frames.h"

#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

namespace gradmon {
namespace {

constexpr int kLevel = 1;  // higher ones save a tenth of the bytes
constexpr int kMostWindowLog = 27;
constexpr std::size_t kMostText = std::size_t{1} << 30U;  // bytes of a frame

constexpr std::string_view kMagic = "\x28\xb5\x2f\xfd";

tl::unexpected<std::string> library_error(std::size_t code) {
  return tl::unexpected(std::string("zstd: ") + ZSTD_getErrorName(code));
}

// The text of frames, from the bytes of a file in order.
class FrameReader {
 public:
  explicit FrameReader(const std::function<void(std::string_view)>& take)
      : take_(take), context_(ZSTD_createDCtx(), &ZSTD_freeDCtx), block_(ZSTD_DStreamOutSize()) {
    ZSTD_DCtx_setParameter(context_.get(), ZSTD_d_windowLogMax, kMostWindowLog);
  }

  // False: the bytes are no frame.
  bool add(std::string_view bytes) {
    ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
    for (bool is_full = true; in.pos < in.size || is_full;) {
      ZSTD_outBuffer out{block_.data(), block_.size(), 0};
      const std::size_t left = ZSTD_decompressStream(context_.get(), &out, &in);
      text_.append(block_.data(), out.pos);
      is_broken_ = ZSTD_isError(left) != 0 || text_.size() > kMostText;
      if (is_broken_) return false;
      is_full = out.pos == out.size;
      if (left != 0) continue;
      whole_bytes_ = at_ + static_cast<off_t>(in.pos);
      take_(text_);
      text_.clear();
      is_full = false;
    }
    at_ += static_cast<off_t>(in.size);
    return true;
  }

  bool broken() const { return is_broken_; }
  off_t whole_bytes() const { return whole_bytes_; }

 private:
  const std::function<void(std::string_view)>& take_;
  std::unique_ptr<ZSTD_DCtx, decltype(&ZSTD_freeDCtx)> context_;
  std::vector<char> block_;
  std::string text_;  // of the current frame
  off_t at_ = 0;
  off_t whole_bytes_ = 0;
  bool is_broken_ = false;
};

// After a power failure the end of a file may be zeros: then no frame begins there.
bool begins_frame_after(int file, off_t at) {
  std::vector<char> block(std::size_t{1} << 16U);
  std::size_t kept = 0;  // bytes of the part before, in which a magic number may begin
  for (;;) {
    const ssize_t n = ::pread(file, block.data() + kept, block.size() - kept, at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    const std::string_view seen(block.data(), kept + static_cast<std::size_t>(n));
    if (seen.find(kMagic) != std::string_view::npos) return true;
    at += n;
    kept = std::min(seen.size(), kMagic.size() - 1);
    std::memmove(block.data(), seen.data() + seen.size() - kept, kept);
  }
}

}  // namespace

void FrameCompressor::Free::operator()(ZSTD_CCtx_s* context) const { ZSTD_freeCCtx(context); }

tl::expected<std::string_view, std::string> FrameCompressor::compress(std::string_view first,
                                                                      std::string_view second) {
  if (!context_) {
    context_.reset(ZSTD_createCCtx());
    if (!context_) return tl::unexpected(std::string("zstd: no memory"));
    ZSTD_CCtx_setParameter(context_.get(), ZSTD_c_compressionLevel, kLevel);
    ZSTD_CCtx_setParameter(context_.get(), ZSTD_c_checksumFlag, 1);
  }
  const std::size_t size = first.size() + second.size();
  frame_.resize(std::max(frame_.size(), ZSTD_compressBound(size)));
  ZSTD_CCtx_setPledgedSrcSize(context_.get(), size);
  ZSTD_outBuffer out{frame_.data(), frame_.size(), 0};
  ZSTD_inBuffer in{first.data(), first.size(), 0};
  std::size_t left = ZSTD_compressStream2(context_.get(), &out, &in, ZSTD_e_continue);
  if (ZSTD_isError(left) == 0) {
    in = {second.data(), second.size(), 0};
    left = ZSTD_compressStream2(context_.get(), &out, &in, ZSTD_e_end);
  }
  if (ZSTD_isError(left) == 0 && left == 0) return std::string_view(frame_.data(), out.pos);
  ZSTD_CCtx_reset(context_.get(), ZSTD_reset_session_only);
  return library_error(left);
}

tl::expected<off_t, std::string> read_frames(int file, const std::function<void(std::string_view)>& take) {
  FrameReader reader(take);
  std::vector<char> block(std::size_t{1} << 18U);
  for (off_t at = 0;;) {
    const ssize_t n = ::pread(file, block.data(), block.size(), at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return tl::unexpected(std::string(std::strerror(errno)));
    if (n == 0 || !reader.add({block.data(), static_cast<std::size_t>(n)})) break;
    at += n;
  }
  if (reader.broken() && begins_frame_after(file, reader.whole_bytes() + 1))
    return tl::unexpected("byte " + std::to_string(reader.whole_bytes()) + ": not a zstd frame");
  return reader.whole_bytes();
}

}  // namespace gradmon
