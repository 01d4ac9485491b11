// SPDX-License-Identifier: Apache-2.0
#include "tests/whole/availability/disks.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "tests/support/real_job.h"

namespace gradmon {
namespace {

constexpr long kFuseMagic = 0x65735546;
constexpr const char* kFillerFile = ".ballast";

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error(what + ": " + std::strerror(errno));
}

}  // namespace

std::string isolate_mounts() {
  static const std::string error = [] {
    if (unshare(CLONE_NEWNS) == 0 && mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0)
      return std::string();
    return std::string("no own mount namespace: ") + std::strerror(errno);
  }();
  return error;
}

void fill_disk(const std::filesystem::path& directory) {
  const std::filesystem::path file = directory / kFillerFile;
  const int fd = open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_APPEND, 0600);
  if (fd < 0) fail("open " + file.string());
  const std::vector<char> block(65'536);
  for (std::size_t size = block.size(); size > 0; size /= 2) {
    while (write(fd, block.data(), size) > 0) continue;
  }
  close(fd);
}

void make_room_in(const std::filesystem::path& directory) { unlink((directory / kFillerFile).c_str()); }

SmallDisk::SmallDisk(std::filesystem::path at, std::size_t bytes) : at_(std::move(at)) {
  std::filesystem::create_directories(at_);
  const std::string options = "mode=0700,size=" + std::to_string(bytes);
  if (mount("gradmon-test", at_.c_str(), "tmpfs", 0, options.c_str()) != 0) fail("mount " + at_.string());
}

SmallDisk::~SmallDisk() { umount2(at_.c_str(), MNT_DETACH); }

HangingDisk::HangingDisk(std::filesystem::path at) : at_(std::move(at)) {
  std::filesystem::create_directories(at_);
  std::filesystem::permissions(backing_.path(), std::filesystem::perms::owner_all);
  ProcessOptions options;
  options.command = {program("hanging-disk"), at_.string(), backing_.path().string()};
  options.output = control_ / "log";
  server_ = std::make_unique<ChildProcess>(options);
  const bool mounted = eventually([&] {
    struct statfs found {};
    return statfs(at_.c_str(), &found) == 0 && found.f_type == kFuseMagic;
  });
  if (!mounted) throw std::runtime_error("no FUSE file system: " + read_text(control_ / "log"));
}

HangingDisk::~HangingDisk() {
  server_.reset();  // Killing the server ends the calls that hang.
  umount2(at_.c_str(), MNT_DETACH);
}

void HangingDisk::hang() { server_->signal(SIGUSR1); }
void HangingDisk::make_read_only() { server_->signal(SIGHUP); }
void HangingDisk::recover() { server_->signal(SIGUSR2); }

}  // namespace gradmon
