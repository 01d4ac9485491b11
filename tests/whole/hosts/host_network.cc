// SPDX-License-Identifier: Apache-2.0
#include "tests/whole/hosts/host_network.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>

namespace gradmon {
namespace {

namespace fs = std::filesystem;

constexpr char kNamespaces[] = "/run/netns";
constexpr char kPrefix[] = "gradmon-";

// The arguments are names and addresses made here: none needs quoting.
bool ip(const std::string& arguments) {
  return std::system(("ip " + arguments + " >/dev/null 2>&1").c_str()) == 0;
}

void ip_or_throw(const std::string& arguments) {
  if (!ip(arguments)) throw std::runtime_error("ip " + arguments + " failed");
}

void remove_namespaces(const std::string& prefix) {
  std::error_code none;
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kNamespaces, none)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind(prefix, 0) == 0) names.push_back(name);
  }
  for (const std::string& name : names) ip("netns delete " + name);
}

void remove_leftovers() {
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(kNamespaces, none)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind(kPrefix, 0) != 0) continue;
    const long pid = std::strtol(name.c_str() + sizeof kPrefix - 1, nullptr, 10);
    if (pid <= 0 || (kill(static_cast<pid_t>(pid), 0) != 0)) ip("netns delete " + name);
  }
}

}  // namespace

std::string HostNetwork::why_unavailable() {
  if (geteuid() != 0) return "network namespaces need root";
  if (!ip("-V")) return "there is no ip command (iproute2)";
  const std::string trial = kPrefix + std::to_string(getpid()) + "-trial";
  const bool possible = ip("netns add " + trial) &&
                        ip("-n " + trial + " link add name bridge0 type bridge") &&
                        ip("-n " + trial + " link add name end0 type veth peer name end1");
  ip("netns delete " + trial);
  return possible ? "" : "the kernel makes no network namespace, bridge or veth here";
}

HostNetwork::HostNetwork(int hosts) : prefix_(kPrefix + std::to_string(getpid()) + "-") {
  remove_leftovers();
  const std::string inside = "-n " + switch_name() + " ";
  ip_or_throw("netns add " + switch_name());
  ip_or_throw(inside + "link add name bridge0 type bridge");
  ip_or_throw(inside + "address add " + switch_address() + "/24 dev bridge0");
  ip_or_throw(inside + "link set bridge0 up");
  ip_or_throw(inside + "link set lo up");
  for (int host = 0; host < hosts; ++host) {
    const std::string port = "port" + std::to_string(host);
    ip_or_throw("netns add " + name_of(host));
    ip_or_throw(inside + "link add name " + port + " type veth peer name eth0 netns " + name_of(host));
    ip_or_throw(inside + "link set " + port + " master bridge0 up");
    ip_or_throw("-n " + name_of(host) + " address add " + address(host) + "/24 dev eth0");
    ip_or_throw("-n " + name_of(host) + " link set eth0 up");
    ip_or_throw("-n " + name_of(host) + " link set lo up");
  }
  previous_namespace_ = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
  const int there = open((std::string(kNamespaces) + "/" + switch_name()).c_str(), O_RDONLY | O_CLOEXEC);
  if (previous_namespace_ < 0 || there < 0 || setns(there, CLONE_NEWNET) != 0)
    throw std::runtime_error("setns failed");
  close(there);
}

HostNetwork::~HostNetwork() {
  setns(previous_namespace_, CLONE_NEWNET);
  close(previous_namespace_);
  remove_namespaces(prefix_);
}

std::string HostNetwork::address(int host) { return "10.77.0." + std::to_string(host + 1); }
std::string HostNetwork::switch_address() { return "10.77.0.254"; }
std::string HostNetwork::name_of(int host) const { return prefix_ + std::to_string(host); }
std::string HostNetwork::switch_name() const { return prefix_ + "switch"; }

std::string HostNetwork::namespace_file(int host) const {
  return std::string(kNamespaces) + "/" + name_of(host);
}

std::vector<std::string> HostNetwork::host_prefix(int host) const {
  return {"ip",          "netns",   "exec",
          name_of(host), "unshare", "--uts",
          "sh",          "-c",      "hostname host" + std::to_string(host) + " && exec \"$@\"",
          "sh"};
}

void HostNetwork::take_down(int host) const {
  ip_or_throw("-n " + switch_name() + " link set port" + std::to_string(host) + " down");
}

void HostNetwork::bring_up(int host) const {
  ip_or_throw("-n " + switch_name() + " link set port" + std::to_string(host) + " up");
}

}  // namespace gradmon
