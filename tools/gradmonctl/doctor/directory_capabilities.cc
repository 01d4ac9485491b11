// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/doctor/directory_capabilities.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <set>
#include <utility>

#include "control/config/file_watch.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;

constexpr int kEventWaitMs = 1000;

struct Magic {
  std::uint32_t number;
  const char* name;
};
// linux/magic.h has no constants for the types given by number.
constexpr std::array<Magic, 18> kMagics{{{EXT4_SUPER_MAGIC, "ext4"},
                                         {XFS_SUPER_MAGIC, "xfs"},
                                         {BTRFS_SUPER_MAGIC, "btrfs"},
                                         {TMPFS_MAGIC, "tmpfs"},
                                         {OVERLAYFS_SUPER_MAGIC, "overlay"},
                                         {NFS_SUPER_MAGIC, "nfs"},
                                         {SMB_SUPER_MAGIC, "smb"},
                                         {0xFF534D42, "cifs"},
                                         {0xFE534D42, "smb2"},
                                         {FUSE_SUPER_MAGIC, "fuse"},
                                         {V9FS_MAGIC, "9p"},
                                         {CEPH_SUPER_MAGIC, "ceph"},
                                         {AFS_SUPER_MAGIC, "afs"},
                                         {0x0BD00BD0, "lustre"},
                                         {0x47504653, "gpfs"},
                                         {0x19830326, "beegfs"},
                                         {0x2FC12FC1, "zfs"},
                                         {PROC_SUPER_MAGIC, "proc"}}};

// The names of two temporary files. The constructor creates the first file; the
// destructor removes both.
class ProbeFiles {
 public:
  explicit ProbeFiles(const fs::path& directory) : name_((directory / ".gradmon-doctor-XXXXXX").string()) {
    const int fd = mkostemp(name_.data(), O_CLOEXEC);
    cause_ = errno;
    made_ = fd >= 0;
    if (made_) close(fd);
  }
  ~ProbeFiles() {
    if (!made_) return;
    unlink(name_.c_str());
    unlink(other().c_str());
  }
  ProbeFiles(const ProbeFiles&) = delete;
  ProbeFiles& operator=(const ProbeFiles&) = delete;

  bool made() const { return made_; }
  int cause() const { return cause_; }
  const std::string& one() const { return name_; }
  std::string other() const { return name_ + "-2"; }

 private:
  std::string name_;
  bool made_ = false;
  int cause_ = 0;
};

bool watch_works(const ProbeFiles& files) {
  FileWatch watch(files.other());
  if (watch.fd() < 0) return false;
  watch.update_watches();
  if (rename(files.one().c_str(), files.other().c_str()) != 0) return false;
  pollfd readable{watch.fd(), POLLIN, 0};
  const bool came = poll(&readable, 1, kEventWaitMs) == 1 && !watch.read_events().empty();
  return rename(files.other().c_str(), files.one().c_str()) == 0 && came;
}

}  // namespace

std::string file_system_of(const fs::path& path) {
  struct statfs status {};
  if (statfs(path.c_str(), &status) != 0) return {};
  const auto number = static_cast<std::uint32_t>(status.f_type);
  const auto* known = std::find_if(kMagics.begin(), kMagics.end(),
                                   [&](const Magic& magic) { return magic.number == number; });
  if (known != kMagics.end()) return known->name;
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "0x%08x", number);
  return text.data();
}

bool is_network_file_system(const std::string& kind) {
  static const std::set<std::string> kinds{"nfs",  "smb", "cifs",   "smb2", "fuse",  "9p",
                                           "ceph", "afs", "lustre", "gpfs", "beegfs"};
  return kinds.count(kind) != 0;
}

tl::expected<DirectoryCapabilities, std::string> probe_directory(const fs::path& directory) {
  const ProbeFiles files(directory);
  if (!files.made())
    return tl::unexpected("no file can be made in " + directory.string() + ": " +
                          std::strerror(files.cause()));
  DirectoryCapabilities trial;
  trial.watch = watch_works(files);
  close(open(files.other().c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  trial.exchange =
      renameat2(AT_FDCWD, files.one().c_str(), AT_FDCWD, files.other().c_str(), RENAME_EXCHANGE) == 0;
  return trial;
}

}  // namespace gradmon
