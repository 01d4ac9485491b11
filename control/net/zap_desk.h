// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <zmq.hpp>

#include "control/net/allow_list.h"

namespace gradmon {

// Answers libzmq's question whether a key may connect (ZAP, ZeroMQ's RFC 27).
// Without an answer nobody gets in. To be made before the sockets it guards are
// bound; the thread of the Bus that owns it.
class ZapDesk {
 public:
  static constexpr const char* kDomain = "gradmon";

  ZapDesk(zmq::context_t& context, AllowList clients);

  // Readable when there is something to answer.
  void* handle() { return questions_.handle(); }
  void answer();
  // Of a client that was let in, by the name that its messages carry; null: no such one.
  const Client* client(const std::string& name) const;

 private:
  const AllowList clients_;
  std::map<std::string, const Client*> by_name_;
  zmq::socket_t questions_;
};

}  // namespace gradmon
