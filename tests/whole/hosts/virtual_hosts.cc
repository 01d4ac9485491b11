// SPDX-License-Identifier: Apache-2.0
#include "tests/whole/hosts/virtual_hosts.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
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

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kTmpfsBytes = std::size_t{8} << 20U;

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error(what + ": " + std::strerror(errno));
}

int open_namespace(const std::string& file) { return open(file.c_str(), O_RDONLY | O_CLOEXEC); }

bool enter(const std::string& file, int kind) {
  const int fd = open_namespace(file);
  const bool entered = fd >= 0 && setns(fd, kind) == 0;
  if (fd >= 0) close(fd);
  return entered;
}

std::string of_process(pid_t process, const std::string& name) {
  return "/proc/" + std::to_string(process) + "/ns/" + name;
}

// The first process of a host: makes its namespaces, writes a byte to `tell`, and reaps orphans.
[[noreturn]] void run_init(const std::string& network, const std::string& name, const fs::path& tmpfs,
                           int tell) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const std::string options = "mode=0700,size=" + std::to_string(kTmpfsBytes);
  const bool made = enter(network, CLONE_NEWNET) && unshare(CLONE_NEWUTS | CLONE_NEWNS) == 0 &&
                    sethostname(name.data(), name.size()) == 0 &&
                    mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                    mount("proc", "/proc", "proc", 0, nullptr) == 0 &&
                    mount("gradmon-test", tmpfs.c_str(), "tmpfs", 0, options.c_str()) == 0;
  signal(SIGCHLD, SIG_IGN);
  if (!made || write(tell, "", 1) != 1) _exit(1);
  for (;;) pause();
}

}  // namespace

IsolatedHosts::IsolatedHosts(int hosts, fs::path tmpfs)
    : tmpfs_(std::move(tmpfs)), network_(hosts), own_pids_(open_namespace("/proc/self/ns/pid")) {
  fs::create_directories(tmpfs_);
  for (int host = 0; host < hosts; ++host) inits_.push_back(start_init(host));
}

IsolatedHosts::~IsolatedHosts() {
  for (const pid_t init : inits_) kill(init, SIGKILL);
  for (const pid_t init : inits_) waitpid(init, nullptr, 0);
  close(own_pids_);
}

pid_t IsolatedHosts::start_init(int host) const {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0 || unshare(CLONE_NEWPID) != 0) fail("no host");
  const pid_t init = fork();
  if (init == 0) run_init(network_.namespace_file(host), "host" + std::to_string(host), tmpfs_, ends[1]);
  if (setns(own_pids_, CLONE_NEWPID) != 0) fail("setns");
  close(ends[1]);
  char made = 0;
  const bool there = read(ends[0], &made, 1) == 1;
  close(ends[0]);
  if (!there) fail("host " + std::to_string(host) + " cannot be made");
  return init;
}

pid_t IsolatedHosts::start(int host, const std::vector<std::string>& command, const fs::path& log,
                           const std::map<std::string, std::string>& environment) const {
  const pid_t init = inits_.at(static_cast<std::size_t>(host));
  if (!enter(of_process(init, "pid"), CLONE_NEWPID)) fail("setns");
  const pid_t child = fork();
  if (child != 0) {
    if (setns(own_pids_, CLONE_NEWPID) != 0) fail("setns");
    return child;
  }
  // The mount namespace last: its /proc has the processes of the host only.
  const bool there = enter(of_process(init, "net"), CLONE_NEWNET) &&
                     enter(of_process(init, "uts"), CLONE_NEWUTS) &&
                     enter(of_process(init, "mnt"), CLONE_NEWNS);
  const int out = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  if (!there || out < 0) _exit(126);
  dup2(out, STDOUT_FILENO);
  dup2(out, STDERR_FILENO);
  for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> arguments;
  for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  _exit(127);
}

bool IsolatedHosts::runs(int host, pid_t process) const {
  std::error_code gone;
  const auto theirs = fs::read_symlink(of_process(process, "uts"), gone);
  return !gone &&
         theirs == fs::read_symlink(of_process(inits_.at(static_cast<std::size_t>(host)), "uts"), gone);
}

fs::path IsolatedHosts::path_from_test(int host, const fs::path& path) const {
  return "/proc/" + std::to_string(inits_.at(static_cast<std::size_t>(host))) + "/root" + path.string();
}

}  // namespace gradmon
