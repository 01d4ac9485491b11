// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tests/whole/hosts/host_network.h"

namespace gradmon {

// Virtual hosts, each with its own network, mount, UTS and pid namespace, and its own tmpfs
// at the same path. All processes of a host end with this object, or with the test. The
// hosts see all other files, and the mounts that the test made before. Needs root.
class IsolatedHosts {
 public:
  IsolatedHosts(int hosts, std::filesystem::path tmpfs);
  ~IsolatedHosts();
  IsolatedHosts(const IsolatedHosts&) = delete;
  IsolatedHosts& operator=(const IsolatedHosts&) = delete;

  int count() const { return static_cast<int>(inits_.size()); }
  const HostNetwork& network() const { return network_; }

  // Starts a program on a host, as a child of this process; its output is appended to `log`.
  pid_t start(int host, const std::vector<std::string>& command, const std::filesystem::path& log,
              const std::map<std::string, std::string>& environment) const;
  // Whether the process runs on the host.
  bool runs(int host, pid_t process) const;
  // The path by which this process reaches `path` of the host.
  std::filesystem::path path_from_test(int host, const std::filesystem::path& path) const;

  // The path by which this process reaches the tmpfs of the host.
  std::filesystem::path tmpfs_from_test(int host) const { return path_from_test(host, tmpfs_); }

 private:
  pid_t start_init(int host) const;

  const std::filesystem::path tmpfs_;
  const HostNetwork network_;
  const int own_pids_;  // descriptor of the test's pid namespace
  std::vector<pid_t> inits_;
};

}  // namespace gradmon
