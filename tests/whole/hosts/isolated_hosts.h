// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tests/whole/hosts/host_network.h"

namespace gradmon {

// Hosts of a test's own, each with a network, mount, UTS and pid namespace, and a tmpfs
// of its own at one path. All that runs on a host ends with this object, or with the test.
// Other files are those of the test, as it has mounted them before. Needs root.
class IsolatedHosts {
 public:
  IsolatedHosts(int hosts, std::filesystem::path tmpfs);
  ~IsolatedHosts();
  IsolatedHosts(const IsolatedHosts&) = delete;
  IsolatedHosts& operator=(const IsolatedHosts&) = delete;

  int count() const { return static_cast<int>(inits_.size()); }
  const HostNetwork& network() const { return network_; }

  // Starts a program there as a child of this process; its output is appended to `log`.
  pid_t start(int host, const std::vector<std::string>& command, const std::filesystem::path& log,
              const std::map<std::string, std::string>& environment) const;
  // Whether that process runs on that host.
  bool runs(int host, pid_t process) const;
  // How this process sees a path of that host.
  std::filesystem::path seen(int host, const std::filesystem::path& path) const;

  // The tmpfs of a host: not a byte more can be written.
  void fill(int host) const;
  void make_room(int host) const;

 private:
  pid_t start_init(int host) const;

  const std::filesystem::path tmpfs_;
  const HostNetwork network_;
  const int own_pids_;  // descriptor of this process's pid namespace
  std::vector<pid_t> inits_;
};

}  // namespace gradmon
