// SPDX-License-Identifier: Apache-2.0
// Virtual hosts on this machine. They need root.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <map>
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
  // True if the process runs on the host.
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
