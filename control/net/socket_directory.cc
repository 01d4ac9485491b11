// SPDX-License-Identifier: Apache-2.0
#include "control/net/socket_directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace gradmon {
namespace {

namespace fs = std::filesystem;

constexpr char kPrefix[] = "gradmon-";
constexpr std::size_t kLongestRoot = 60;

void remove_socket(const fs::path& path) {
  struct stat status {};
  if (lstat(path.c_str(), &status) == 0 && S_ISSOCK(status.st_mode)) unlink(path.c_str());
}

}  // namespace

tl::expected<fs::path, std::string> make_socket_directory() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  const bool usable = runtime != nullptr && *runtime == '/' && std::strlen(runtime) <= kLongestRoot &&
                      access(runtime, W_OK | X_OK) == 0;
  std::string pattern = std::string(usable ? runtime : "/tmp") + "/" + kPrefix + "XXXXXX";
  if (mkdtemp(pattern.data()) == nullptr) return tl::unexpected(pattern + ": " + std::strerror(errno));
  return fs::path(pattern);
}

void remove_socket_directory(const std::string& endpoint) {
  constexpr char ipc[] = "ipc://";
  if (endpoint.rfind(ipc, 0) != 0) return;
  const fs::path socket = endpoint.substr(std::strlen(ipc));
  const fs::path directory = socket.parent_path();
  struct stat status {};
  const bool ours = directory.filename().string().rfind(kPrefix, 0) == 0 &&
                    lstat(directory.c_str(), &status) == 0 && S_ISDIR(status.st_mode) &&
                    status.st_uid == geteuid() && (status.st_mode & 0777U) == 0700U;
  if (!ours) return;
  remove_socket(socket);
  remove_socket(socket.string() + ".state");
  rmdir(directory.c_str());  // Only where nothing else is in it.
}

}  // namespace gradmon
