// SPDX-License-Identifier: Apache-2.0
#include "control/net/directory_register.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "control/net/messages.h"
#include "control/net/private_directory.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;

constexpr char kNonce[] = "nonce";

tl::unexpected<std::string> failed(const char* what, const fs::path& path) {
  return tl::unexpected(std::string(what) + " " + path.string() + ": " + std::strerror(errno));
}

bool write_whole(int fd, const std::string& bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::write(fd, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += static_cast<std::size_t>(n);
  }
  return true;
}

tl::expected<void, std::string> write_aside(const fs::path& path, const std::string& bytes) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0640);
  if (fd < 0) return failed("cannot make", path);
  const bool written = write_whole(fd, bytes) && fsync(fd) == 0;
  const int why = errno;
  close(fd);
  errno = why;
  if (!written) return failed("cannot write", path);
  return {};
}

// Some file systems know no fsync of a directory (EINVAL): what they publish holds.
bool sync_directory(const fs::path& directory) {
  const int fd = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool synced = fsync(fd) == 0 || errno == EINVAL;
  const int why = errno;
  close(fd);
  errno = why;
  return synced;
}

tl::expected<std::string, std::string> read_whole(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return failed("cannot read", path);
  std::ostringstream text;
  errno = 0;
  text << in.rdbuf();
  if (!text) {  // A read that failed, or an empty file.
    if (errno == 0) errno = ENODATA;
    return failed("cannot read", path);
  }
  return text.str();
}

// Publishes `bytes` under `path` unless that exists; either is success.
tl::expected<void, std::string> publish_once(const fs::path& aside, const fs::path& path,
                                             const std::string& bytes) {
  if (auto written = write_aside(aside, bytes); !written) return written;
  const bool linked = link(aside.c_str(), path.c_str()) == 0 || errno == EEXIST;
  const int why = errno;
  unlink(aside.c_str());
  errno = why;
  if (!linked) return failed("cannot publish", path);
  if (!sync_directory(path.parent_path())) return failed("cannot make durable", path);
  return {};
}

}  // namespace

DirectoryRegister::DirectoryRegister(fs::path directory, std::string process_id)
    : directory_(std::move(directory)), process_id_(std::move(process_id)) {}

tl::expected<Verdict, std::string> DirectoryRegister::decide(const Verdict& verdict) {
  const fs::path entry = directory_ / std::to_string(verdict.revision.value);
  if (auto published = publish_once(next_aside(), entry, encode(verdict)); !published) {
    return tl::unexpected(published.error());
  }
  return read(entry);
}

tl::expected<Verdict, std::string> DirectoryRegister::read(const fs::path& entry) {
  return read_whole(entry).and_then([&](const std::string& bytes) -> tl::expected<Verdict, std::string> {
    auto verdict = decode_verdict(bytes);
    if (!verdict) return tl::unexpected(entry.string() + ": " + verdict.error());
    return verdict;
  });
}

tl::expected<void, std::string> DirectoryRegister::create(const std::string& nonce) {
  if (auto made = make_private_directory(directory_); !made) return made;
  return publish_once(next_aside(), directory_ / kNonce, nonce);
}

fs::path DirectoryRegister::next_aside() {
  return directory_ / (".aside-" + process_id_ + "-" + std::to_string(++asides_));
}

tl::expected<void, std::string> DirectoryRegister::prove(const std::string& nonce) {
  auto found = read_whole(directory_ / kNonce);
  if (!found) return tl::unexpected("does not see rank 0's output directory: " + found.error());
  if (*found != nonce) return tl::unexpected("sees another " + directory_.string() + " than rank 0");
  return {};
}

}  // namespace gradmon
