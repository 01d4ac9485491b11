// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <zmq.hpp>

#include "control/hub/keys/allow_list.h"

namespace gradmon {

// Answers libzmq's requests whether a key may connect (ZAP, ZeroMQ's RFC 27). Without an answer no peer can
// connect. Make it before the sockets that it guards are bound. Used by the thread of its Bus.
class ZapHandler {
 public:
  static constexpr const char* kDomain = "gradmon";

  ZapHandler(zmq::context_t& context, AllowList clients);

  // Readable when a request waits.
  void* handle() { return questions_.handle(); }
  void answer();
  // Adds a key to the allow-list. Replaces the client that the key had before.
  void allow(const KeyBytes& key, Client client);
  // Replaces the allow-list. Open connections stay.
  void allow_only(AllowList clients);
  // The listed client with this key in Z85, which libzmq attaches to each message as its user id; null: the
  // key is no longer listed. Valid until the next allow() or allow_only().
  const Client* client(const std::string& user_id) const;
  // "" or a line for the status: the number of refused connections, and the last one's key and address.
  std::string refusals() const;

 private:
  AllowList clients_;
  std::uint64_t refused_ = 0;
  std::string last_refused_;
  zmq::socket_t questions_;
};

}  // namespace gradmon
