// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace gradmon {

// Hosts of a test's own: a network namespace and a host name each, one link from
// each to a switch, which is a namespace too, and in which the process that made
// this lives meanwhile (threads it has started before do not). Needs root.
// What dead tests have left behind is removed first.
class HostNetwork {
 public:
  // Why it cannot be made here; "" if it can.
  static std::string objection();

  explicit HostNetwork(int hosts);
  ~HostNetwork();
  HostNetwork(const HostNetwork&) = delete;
  HostNetwork& operator=(const HostNetwork&) = delete;

  static std::string address(int host);
  static std::string switch_address();
  // What a command line is begun with to run on a host.
  std::vector<std::string> on_host(int host) const;

  // Of the host's network.
  std::string namespace_file(int host) const;

  // The cable of a host: pulled, nothing passes and nobody is told.
  void take_down(int host) const;
  void bring_up(int host) const;

 private:
  std::string name_of(int host) const;
  std::string switch_name() const;

  const int hosts_;
  const std::string prefix_;
  int home_ = -1;  // the namespace this process came from
};

}  // namespace gradmon
