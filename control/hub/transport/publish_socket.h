// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <tl/expected.hpp>

namespace gradmon {

// A ZeroMQ PUB socket at ipc://PATH for subscribers of this user and root. It never waits for a subscriber:
// of messages beyond kMostWaiting that one has not read, it misses the next. A message from a subscriber has
// at most kMostBytesIn bytes; one that sends more is cut off. Nothing else bounds what a subscriber may ask
// for, so the socket belongs into a process that may fail (service/alert_publisher.h). One thread.
class PublishSocket {
 public:
  static constexpr int kMostWaiting = 1'000;
  static constexpr int kMostBytesIn = 512;  // a topic, or the metadata of the handshake

  // A socket of this user that an earlier process left at the path is removed. Takes 64 descriptors or less.
  static tl::expected<std::unique_ptr<PublishSocket>, std::string> listen(const std::filesystem::path& path);
  // Removes the path if it still names this socket. Waits at most 100 ms for subscribers to take what was
  // sent.
  ~PublishSocket();
  PublishSocket(const PublishSocket&) = delete;
  PublishSocket& operator=(const PublishSocket&) = delete;

  // Two frames: the topic, which subscribers choose by its first bytes, and the text.
  void send(const std::string& topic, const std::string& text);
  // Readable when subscribers have come, gone or asked. Call handle_subscribers() then, and after send().
  int fd() const;
  void handle_subscribers();

 private:
  struct Sockets;
  explicit PublishSocket(std::unique_ptr<Sockets> sockets);

  const std::unique_ptr<Sockets> sockets_;
};

}  // namespace gradmon
