// SPDX-License-Identifier: Apache-2.0
#include "tests/support/process_figures.h"

#include <sys/socket.h>

#include <set>
#include <sstream>
#include <string>

#include "control/files/descriptor.h"
#include "control/host/unix_stream.h"
#include "tests/support/temporary_directory.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;

fs::path directory_of(pid_t process) { return "/proc/" + std::to_string(process); }

std::size_t number_after(const fs::path& file, const std::string& label) {
  const std::string text = read_text(file);
  const std::size_t at = text.find(label);
  return at == text.npos ? 0 : std::stoul(text.substr(at + label.size()));
}

std::size_t entries_of(const fs::path& directory) {
  std::error_code gone;
  std::size_t count = 0;
  for (fs::directory_iterator at(directory, gone), end; !gone && at != end; at.increment(gone)) ++count;
  return count;
}

}  // namespace

pid_t listener_of(const fs::path& socket) {
  const auto fd = connect_unix(socket);
  if (!fd) return -1;
  const Descriptor connection(*fd);
  ucred who{};
  socklen_t size = sizeof who;
  return getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 ? who.pid : -1;
}

std::vector<pid_t> hubs_below(const fs::path& place) {
  std::vector<pid_t> found;
  for (const fs::directory_entry& process : fs::directory_iterator("/proc")) {
    const std::string name = process.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string line = read_text(process.path() / "cmdline");
    const std::string program = line.substr(0, line.find('\0'));
    if (fs::path(program).filename() != "gradmon-hub" || line.size() <= program.size()) continue;
    if (line.compare(program.size() + 1, place.string().size(), place.string()) == 0)
      found.push_back(static_cast<pid_t>(std::stol(name)));
  }
  return found;
}

double resident_mib(pid_t process) {
  return static_cast<double>(number_after(directory_of(process) / "status", "VmRSS:")) / 1024;
}

std::size_t descriptors_of(pid_t process) { return entries_of(directory_of(process) / "fd"); }
std::size_t threads_of(pid_t process) { return entries_of(directory_of(process) / "task"); }

std::size_t tcp_sockets_of(pid_t process, TcpSockets which) {
  std::set<std::string> own;
  std::error_code gone;
  for (fs::directory_iterator at(directory_of(process) / "fd", gone), end; !gone && at != end;
       at.increment(gone)) {
    std::error_code closed;
    const std::string target = fs::read_symlink(at->path(), closed).string();
    if (target.rfind("socket:[", 0) == 0) own.insert(target.substr(8, target.size() - 9));
  }
  std::size_t count = 0;
  for (const char* table : {"net/tcp", "net/tcp6"}) {
    std::istringstream lines(read_text(directory_of(process) / table));
    for (std::string line; std::getline(lines, line);) {
      std::istringstream fields(line);
      std::string slot, local, remote, state, queues, timer, retries, uid, timeout, inode;
      fields >> slot >> local >> remote >> state >> queues >> timer >> retries >> uid >> timeout >> inode;
      if (own.count(inode) != 0 && (which == TcpSockets::all || state == "01")) ++count;
    }
  }
  return count;
}

std::size_t descriptor_limit_of(pid_t process) {
  return number_after(directory_of(process) / "limits", "Max open files");
}

}  // namespace gradmon
