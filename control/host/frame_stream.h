// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "control/files/descriptor.h"

namespace gradmon {

// One end of a stream socket that carries frames: four bytes with the length of
// the frame, little endian, then its bytes. Never blocks. One thread.
//
// The peer is not trusted. The memory for a frame grows with the bytes that have
// arrived, at most twofold, not with the announced length; a frame that is empty
// or too long breaks the stream. What a peer does not read is bounded.
class FrameStream {
 public:
  struct Limits {
    std::size_t most_bytes_in = 0;      // the longest frame accepted
    std::size_t most_buffered_out = 0;  // frames waiting to be written, four bytes each included
    std::size_t most_in_a_call = std::size_t{128} << 10U;  // read() takes about so many bytes
  };

  struct Read {
    // end_of_file: the peer's side closed the stream or died. broken: the peer
    // breaks the rules above, the system reports an error, or close() was called.
    enum class State { open, end_of_file, broken };

    State state = State::open;
    std::string reason;  // empty while open
  };

  using OnFrame = std::function<void(std::string&&)>;

  // Takes `fd`, a connected stream socket, and makes it close-on-exec. It is
  // closed, never shut down: a forked child may close its copy, and its parent's
  // connection lives on.
  FrameStream(int fd, Limits limits);
  FrameStream(const FrameStream&) = delete;
  FrameStream& operator=(const FrameStream&) = delete;

  // Queues the frame and writes what can be written now. False, with nothing
  // queued: the frame is empty, the bound would be passed, there is no memory, or
  // nobody reads any more. What has come from a peer that is gone can still be read.
  [[nodiscard]] bool send(std::string_view frame);
  // Writes what can be written now.
  void flush();
  // Something is queued: poll for POLLOUT, then flush().
  bool wants_write() const { return fd_.valid() && out_.size() > written_; }

  // Reads what has come, and calls `on_frame` for each whole frame. One call takes
  // Limits::most_in_a_call bytes or 1,000 frames at most, so that no peer starves others; all it
  // has taken is handed out, so what is left makes poll() report POLLIN again.
  // `on_frame` may call send() and close(), but must not destroy the stream.
  [[nodiscard]] Read read(const OnFrame& on_frame);

  // How long the frame is that has come in part; 0: there is none.
  std::size_t begun_in() const { return header_filled_ == header_.size() ? length_ : 0; }
  // For frames whose length has not been read yet.
  void limit_frames_in(std::size_t most_bytes, std::size_t most_in_a_call) {
    limits_.most_bytes_in = most_bytes;
    limits_.most_in_a_call = most_in_a_call;
  }

  // Drops what is queued; no frame is handed out afterwards.
  void close();
  // -1 after close().
  int fd() const { return fd_.get(); }

 private:
  std::size_t next_read() const;
  // Returns the number of frames handed out.
  std::size_t take(std::string_view bytes, const OnFrame& on_frame);
  void begin_frame();
  void drop_queue();

  Limits limits_;
  Descriptor fd_;

  std::array<unsigned char, 4> header_{};
  std::size_t header_filled_ = 0;
  std::size_t length_ = 0;  // of the frame being read, once its header is complete
  std::string frame_;
  std::string broken_;  // why; empty: not broken

  std::string out_;
  std::size_t written_ = 0;  // of out_
  bool peer_reads_ = true;
};

}  // namespace gradmon
