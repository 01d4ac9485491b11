// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <zmq.hpp>

#include "control/hub/keys/allow_list.h"

namespace gradmon {

// Answers libzmq's question whether a key may connect (ZAP, ZeroMQ's RFC 27).
// Without an answer nobody gets in. To be made before the sockets it guards are
// bound; the thread of the Bus that owns it.
class ZapHandler {
 public:
  static constexpr const char* kDomain = "gradmon";

  ZapHandler(zmq::context_t& context, AllowList clients);

  // Readable when there is something to answer.
  void* handle() { return questions_.handle(); }
  void answer();
  // From now on; the newest client of a key counts.
  void allow(const KeyBytes& key, Client client);
  // In place of all that were, from now on.
  void allow_only(AllowList clients);
  // Of a client that may come in, by the name that its messages carry; null: no such one.
  const Client* client(const std::string& name) const;
  // "" or a line for the status: how many were refused, and the last one's key.
  std::string refusals() const;

 private:
  AllowList clients_;
  std::map<std::string, Client> by_name_;
  std::uint64_t refused_ = 0;
  std::string last_refused_;
  zmq::socket_t questions_;
};

}  // namespace gradmon
