// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <tl/expected.hpp>

namespace gradmon {

// A ZeroMQ PUB socket at ipc://PATH for subscribers of this user and root. It never waits for a subscriber: a
// subscriber with kMostWaiting unread messages misses the next ones. A message from a subscriber has at most
// kMostBytesIn bytes; a subscriber that sends more is cut off. Nothing else bounds its requests, so the
// socket belongs into a process that may fail (service/alert_publisher.h). One thread.
class PublishSocket {
 public:
  static constexpr int kMostWaiting = 1'000;
  static constexpr int kMostBytesIn = 512;  // a topic, or the metadata of the handshake

  // Removes a socket of this user that an earlier process left at the path. Takes at most 64 descriptors.
  static tl::expected<std::unique_ptr<PublishSocket>, std::string> listen(const std::filesystem::path& path);
  // Removes the path if it still names this socket. Waits at most 100 ms for subscribers to take sent
  // messages.
  ~PublishSocket();
  PublishSocket(const PublishSocket&) = delete;
  PublishSocket& operator=(const PublishSocket&) = delete;

  // Two frames: the topic, which subscribers choose by its first bytes, and the text.
  void send(const std::string& topic, const std::string& text);
  // Readable when subscribers connect, leave or subscribe. Call handle_subscribers() then, and after send().
  int fd() const;
  void handle_subscribers();

 private:
  struct Sockets;
  explicit PublishSocket(std::unique_ptr<Sockets> sockets);

  const std::unique_ptr<Sockets> sockets_;
};

}  // namespace gradmon
