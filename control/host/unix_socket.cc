// SPDX-License-Identifier: Apache-2.0
#include "control/host/unix_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <system_error>

#include "control/files/descriptor.h"
#include "control/files/file_access.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;
using Problem = tl::unexpected<std::string>;

constexpr std::string_view kIpc = "ipc://";
constexpr std::size_t kLongestAddress = sizeof(sockaddr_un::sun_path) - 1;

struct Address {
  sockaddr_un value{};
  Descriptor directory;  // open while `value` refers to it; not valid for a short path
};

tl::expected<Address, std::string> socket_address(const fs::path& path) {
  Address address;
  address.value.sun_family = AF_UNIX;
  std::string text = path.string();
  if (text.empty() || text.find('\0') != std::string::npos)
    return Problem("\"" + text + "\": empty path, or a path with a NUL byte");
  if (text.size() > kLongestAddress) {
    const fs::path parent = path.parent_path();
    address.directory.reset(::open(parent.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!address.directory.valid()) return path_error(parent, errno);
    text = "/proc/self/fd/" + std::to_string(address.directory.get()) + "/" + path.filename().string();
    if (text.size() > kLongestAddress) {
      return Problem(path.string() + ": the socket's file name has " +
                     std::to_string(path.filename().string().size()) + " bytes; at most about 80 fit");
    }
  }
  std::memcpy(address.value.sun_path, text.data(), text.size());
  return address;
}

Descriptor stream_socket() {
  return Descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

const sockaddr* generic(const Address& address) { return reinterpret_cast<const sockaddr*>(&address.value); }

}  // namespace

tl::expected<int, std::string> connect_unix(const fs::path& path) {
  const auto address = socket_address(path);
  if (!address) return Problem(address.error());
  Descriptor socket = stream_socket();
  if (!socket.valid()) return path_error(path, errno);
  int result = 0;
  do {
    result = ::connect(socket.get(), generic(*address), sizeof address->value);
  } while (result != 0 && errno == EINTR);
  if (result != 0 && errno == EAGAIN) return Problem(path.string() + ": the listen queue is full");
  if (result != 0) return path_error(path, errno);
  return socket.release();
}

tl::expected<int, std::string> bind_unix(const fs::path& path) {
  const auto address = socket_address(path);
  if (!address) return Problem(address.error());
  Descriptor socket = stream_socket();
  // Linux creates the file with the socket's own mode less the umask, so the file is never accessible to
  // others. chmod then restores the bits that the umask cleared.
  if (!socket.valid() || ::fchmod(socket.get(), 0600) != 0 ||
      ::bind(socket.get(), generic(*address), sizeof address->value) != 0) {
    return path_error(path, errno);
  }
  if (::chmod(address->value.sun_path, 0600) != 0) {
    const int code = errno;
    ::unlink(address->value.sun_path);
    return path_error(path, code);
  }
  return socket.release();
}

std::string ipc_endpoint(const std::filesystem::path& socket) { return std::string(kIpc) + socket.string(); }

std::optional<std::filesystem::path> ipc_path(const std::string& endpoint) {
  if (endpoint.rfind(kIpc, 0) != 0) return {};
  return endpoint.substr(kIpc.size());
}

tl::expected<uid_t, std::string> peer_uid(int fd) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0)
    return Problem("cannot read the peer's user id: " + std::generic_category().message(errno));
  return credentials.uid;
}

}  // namespace gradmon
