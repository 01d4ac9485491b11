// SPDX-License-Identifier: Apache-2.0
#include "control/host/unix_stream.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <new>
#include <system_error>
#include <utility>

#include "control/files/file_access.h"

namespace gradmon {
namespace {

// Reads are short except within a long frame, because every frame of a read is delivered: 4 KiB hold at
// most 819 frames, so one call delivers at most 200 + 819.
constexpr std::size_t kShortRead = 4096;
constexpr std::size_t kLongRead = std::size_t{64} * 1024;
constexpr std::size_t kMostFramesInACall = 200;
constexpr std::size_t kKeptCapacity = kLongRead;

std::string cause(const char* verb, int code) {
  return std::string("cannot ") + verb + ": " + std::generic_category().message(code);
}

bool try_later(int code) {
  return code == EAGAIN || code == EWOULDBLOCK || code == ENOBUFS || code == ENOMEM;
}

}  // namespace

FrameStream::FrameStream(int fd, Limits limits) : limits_(limits), fd_(fd) {
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
}

bool FrameStream::send(std::string_view frame) {
  if (!fd_.valid() || !peer_reads_ || frame.empty()) return false;
  if (frame.size() > std::numeric_limits<std::uint32_t>::max()) return false;
  flush();
  const std::size_t queued = out_.size() - written_;
  const std::size_t needed = header_.size() + frame.size();
  if (!peer_reads_ || needed > limits_.max_queued_bytes || queued > limits_.max_queued_bytes - needed)
    return false;
  try {
    out_.erase(0, std::exchange(written_, 0));
    out_.reserve(queued + needed);
  } catch (const std::bad_alloc&) {
    return false;
  }
  for (std::size_t i = 0; i < header_.size(); ++i)
    out_ += static_cast<char>((frame.size() >> (8 * i)) & 0xffU);
  out_ += frame;
  flush();
  return peer_reads_;
}

void FrameStream::flush() {
  while (wants_write()) {
    const ssize_t sent =
        ::send(fd_.get(), out_.data() + written_, out_.size() - written_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      written_ += static_cast<std::size_t>(sent);
    } else if (errno != EINTR) {
      if (try_later(errno)) return;
      // The stream is not broken: data that the peer sent before it closed can still be read.
      peer_reads_ = false;
      drop_queue();
    }
  }
  if (written_ > 0) drop_queue();
}

void FrameStream::drop_queue() {
  written_ = 0;
  out_.clear();
  if (out_.capacity() > kKeptCapacity) out_.shrink_to_fit();
}

void FrameStream::close() {
  fd_.reset();
  drop_queue();
  frame_ = {};
  if (broken_.empty()) broken_ = "closed by this side";
}

std::size_t FrameStream::next_read() const {
  const std::size_t rest = header_filled_ == header_.size() ? length_ - frame_.size() : 0;
  return std::clamp(rest, kShortRead, std::min(kLongRead, limits_.max_bytes_per_read));
}

FrameStream::Read FrameStream::read(const OnFrame& on_frame) {
  std::array<char, kLongRead> buffer;  // Not initialised: recv(2) fills the used part.
  std::size_t bytes = 0;
  std::size_t frames = 0;
  while (broken_.empty() && bytes < limits_.max_bytes_per_read && frames < kMostFramesInACall) {
    const ssize_t got = ::recv(fd_.get(), buffer.data(), next_read(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && try_later(errno)) break;
    // ECONNRESET: the peer closed its end with unread data.
    if (got == 0 || (got < 0 && errno == ECONNRESET)) {
      const bool whole = header_filled_ == 0;
      return {Read::State::end_of_file,
              whole ? "the peer closed the connection" : "the peer closed the connection within a frame"};
    }
    if (got < 0) {
      broken_ = cause("read", errno);
      break;
    }
    bytes += static_cast<std::size_t>(got);
    frames += take({buffer.data(), static_cast<std::size_t>(got)}, on_frame);
  }
  if (!broken_.empty()) return {Read::State::broken, broken_};
  return {};
}

std::size_t FrameStream::take(std::string_view bytes, const OnFrame& on_frame) {
  std::size_t frames = 0;
  while (!bytes.empty() && broken_.empty()) {
    if (header_filled_ < header_.size()) {
      header_[header_filled_++] = static_cast<unsigned char>(bytes.front());
      bytes.remove_prefix(1);
      if (header_filled_ == header_.size()) begin_frame();
      continue;
    }
    const std::size_t part = std::min(bytes.size(), length_ - frame_.size());
    try {
      frame_.append(bytes.substr(0, part));
    } catch (const std::bad_alloc&) {
      broken_ = "out of memory for a frame";
      break;
    }
    bytes.remove_prefix(part);
    if (frame_.size() < length_) continue;
    header_filled_ = 0;
    frames += 1;
    on_frame(std::exchange(frame_, {}));
  }
  return frames;
}

void FrameStream::begin_frame() {
  length_ = 0;
  for (std::size_t i = 0; i < header_.size(); ++i) length_ |= std::size_t{header_[i]} << (8 * i);
  if (length_ == 0) broken_ = "received an empty frame";
  if (length_ > limits_.max_frame_bytes) {
    broken_ = "frame of " + std::to_string(length_) + " bytes exceeds the limit of " +
              std::to_string(limits_.max_frame_bytes);
  }
}

namespace {

using Problem = tl::unexpected<std::string>;

constexpr std::string_view kIpc = "ipc://";
constexpr std::size_t kLongestAddress = sizeof(sockaddr_un::sun_path) - 1;

struct Address {
  sockaddr_un value{};
  Descriptor directory;  // open while `value` refers to it; not valid for a short path
};

Result<Address> socket_address(const fs::path& path) {
  Address address;
  address.value.sun_family = AF_UNIX;
  std::string text = path.string();
  if (text.empty() || text.find('\0') != std::string::npos)
    return Problem("\"" + text + "\": empty path, or a path with a NUL byte");
  if (text.size() > kLongestAddress) {
    const fs::path parent = path.parent_path();
    address.directory.reset(::open(parent.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!address.directory.valid()) return path_error(parent, errno);
    text = "/proc/self/fd/" + std::to_string(address.directory.get()) + "/" + path.filename().string();
    if (text.size() > kLongestAddress) {
      return Problem(path.string() + ": the socket's file name has " +
                     std::to_string(path.filename().string().size()) + " bytes; at most about 80 fit");
    }
  }
  std::memcpy(address.value.sun_path, text.data(), text.size());
  return address;
}

Descriptor stream_socket() {
  return Descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

const sockaddr* generic(const Address& address) { return reinterpret_cast<const sockaddr*>(&address.value); }

}  // namespace

Result<int> connect_unix(const fs::path& path) {
  const auto address = socket_address(path);
  if (!address) return Problem(address.error());
  Descriptor socket = stream_socket();
  if (!socket.valid()) return path_error(path, errno);
  int result = 0;
  do {
    result = ::connect(socket.get(), generic(*address), sizeof address->value);
  } while (result != 0 && errno == EINTR);
  if (result != 0 && errno == EAGAIN) return Problem(path.string() + ": the listen queue is full");
  if (result != 0) return path_error(path, errno);
  return socket.release();
}

Result<int> bind_unix(const fs::path& path) {
  const auto address = socket_address(path);
  if (!address) return Problem(address.error());
  Descriptor socket = stream_socket();
  // Linux creates the file with the socket's own mode less the umask, so the file is never accessible to
  // others. chmod then restores the bits that the umask cleared.
  if (!socket.valid() || ::fchmod(socket.get(), 0600) != 0 ||
      ::bind(socket.get(), generic(*address), sizeof address->value) != 0) {
    return path_error(path, errno);
  }
  if (::chmod(address->value.sun_path, 0600) != 0) {
    const int code = errno;
    ::unlink(address->value.sun_path);
    return path_error(path, code);
  }
  return socket.release();
}

std::string ipc_endpoint(const fs::path& socket) { return std::string(kIpc) + socket.string(); }

std::optional<fs::path> ipc_path(const std::string& endpoint) {
  if (endpoint.rfind(kIpc, 0) != 0) return {};
  return endpoint.substr(kIpc.size());
}

Result<uid_t> peer_uid(int fd) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0)
    return Problem("cannot read the peer's user id: " + std::generic_category().message(errno));
  return credentials.uid;
}

}  // namespace gradmon
