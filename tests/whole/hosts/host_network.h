// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace gradmon {

// Virtual hosts: each is a network namespace, with a link to a switch. The switch is a
// network namespace, too; the thread that creates this object moves into it until the
// object is destroyed, with the processes and threads that it starts then. Needs root.
// Removes namespaces that dead tests left behind.
class HostNetwork {
 public:
  // Why this machine cannot have it; "" if it can.
  static std::string why_unavailable();

  explicit HostNetwork(int hosts);
  ~HostNetwork();
  HostNetwork(const HostNetwork&) = delete;
  HostNetwork& operator=(const HostNetwork&) = delete;

  static std::string address(int host);
  static std::string switch_address();
  // The prefix of a command that runs it on a host, with the host name `host0`, `host1`, ….
  std::vector<std::string> host_prefix(int host) const;

  // The file of the host's network namespace.
  std::string namespace_file(int host) const;

  // The host's link. While it is down packets are lost, and the host sees no error.
  void take_down(int host) const;
  void bring_up(int host) const;

 private:
  std::string name_of(int host) const;
  std::string switch_name() const;

  const std::string prefix_;
  int previous_namespace_ = -1;  // descriptor of the network namespace that the thread was in before
};

}  // namespace gradmon
