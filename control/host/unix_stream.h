// SPDX-License-Identifier: Apache-2.0
// Unix stream sockets by path, and frames on a stream socket.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "control/aliases.h"
#include "control/files/descriptor.h"

namespace gradmon {

// One end of a stream socket that carries frames: four bytes with the length of
// the frame, little endian, then its bytes. Never blocks. One thread.
//
// The peer is not trusted. The memory for a frame is at most twice the bytes that have arrived; it does
// not depend on the announced length. A frame that is empty or too long breaks the stream. The queue of
// frames that the peer has not read is bounded.
class FrameStream {
 public:
  struct Limits {
    std::size_t max_frame_bytes = 0;   // the longest frame accepted
    std::size_t max_queued_bytes = 0;  // bytes of queued frames, including their four-byte headers
    std::size_t max_bytes_per_read = std::size_t{128} << 10U;  // bytes per read(), approximately
  };

  struct Read {
    // end_of_file: the peer closed the stream or died. broken: the peer sent an invalid frame, the
    // system reported an error, no memory was left for a frame, or close() was called.
    enum class State { open, end_of_file, broken };

    State state = State::open;
    std::string reason;  // empty while open
  };

  using OnFrame = std::function<void(std::string&&)>;

  // Takes ownership of `fd`, a connected stream socket, and makes it close-on-exec. The socket is
  // closed, but never shut down with shutdown(2): if a forked child closes its copy, the connection of
  // its parent stays open.
  FrameStream(int fd, Limits limits);
  FrameStream(const FrameStream&) = delete;
  FrameStream& operator=(const FrameStream&) = delete;

  // Queues the frame and writes as much as the socket accepts now. Returns false, and does not queue the
  // frame, if the frame is empty, the queue would exceed its limit, no memory is left, or the peer no
  // longer reads. Data that a closed peer has sent can still be read.
  [[nodiscard]] bool send(std::string_view frame);
  // Writes as much of the queue as the socket accepts now.
  void flush();
  // True if frames are queued. If so, poll for POLLOUT, then call flush().
  bool wants_write() const { return fd_.valid() && out_.size() > written_; }

  // Reads the available bytes and calls `on_frame` for each whole frame. One call stops after about
  // Limits::max_bytes_per_read bytes or 1,000 frames, so that no peer starves the others. Every whole frame
  // that was read is delivered; poll() reports POLLIN for the rest. `on_frame` may call send() and
  // close(), but must not destroy the stream.
  [[nodiscard]] Read read(const OnFrame& on_frame);

  // The length of a partly received frame; 0: none.
  std::size_t partial_frame_length() const { return header_filled_ == header_.size() ? length_ : 0; }
  // Changes the limits for frames whose length has not been read yet.
  void set_read_limits(std::size_t max_frame_bytes, std::size_t max_bytes_per_read) {
    limits_.max_frame_bytes = max_frame_bytes;
    limits_.max_bytes_per_read = max_bytes_per_read;
  }

  // Drops the queue. Stops calling on_frame.
  void close();
  // -1 after close().
  int fd() const { return fd_.get(); }

 private:
  std::size_t next_read() const;
  // Returns the number of frames passed to `on_frame`.
  std::size_t take(std::string_view bytes, const OnFrame& on_frame);
  void begin_frame();
  void drop_queue();

  Limits limits_;
  Descriptor fd_;

  std::array<unsigned char, 4> header_{};
  std::size_t header_filled_ = 0;
  std::size_t length_ = 0;  // of the frame being read, once its header is complete
  std::string frame_;
  std::string broken_;  // the reason why the stream is broken, or ""

  std::string out_;
  std::size_t written_ = 0;  // bytes of out_ already written
  bool peer_reads_ = true;
};

// Unix stream sockets. A path of more than 107 bytes does not fit into a socket address; the call reaches it
// through /proc/self/fd of its directory, with one more descriptor. Errors name the path. Any thread.

// Returns a connected, non-blocking, close-on-exec socket; the caller owns it. Never waits: a full
// backlog of the server is an error.
[[nodiscard]] Result<int> connect_unix(const fs::path& path);

// Returns a socket bound to `path`, non-blocking, close-on-exec and not listening yet; the caller owns it.
// Its file has mode 0600 regardless of the umask. `path` must not exist.
[[nodiscard]] Result<int> bind_unix(const fs::path& path);

// "ipc://PATH".
std::string ipc_endpoint(const fs::path& socket);
// The path of "ipc://PATH"; none for any other endpoint.
std::optional<fs::path> ipc_path(const std::string& endpoint);

// The user id of the process that opened the other end of a Unix stream (SO_PEERCRED).
[[nodiscard]] Result<uid_t> peer_uid(int fd);

}  // namespace gradmon
