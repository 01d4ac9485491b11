// SPDX-License-Identifier: Apache-2.0
#include "writers/sinks/sqlite/journal_choice.h"

#include <linux/magic.h>
#include <sys/statfs.h>

#include <algorithm>
#include <array>

namespace gradmon {
namespace {

// linux/magic.h has no constants for the types given by number.
constexpr std::array<std::uint32_t, 16> kRemote = {
    NFS_SUPER_MAGIC,  SMB_SUPER_MAGIC,
    0xFF534D42,  // cifs
    0xFE534D42,  // smb2
    FUSE_SUPER_MAGIC, V9FS_MAGIC,       CEPH_SUPER_MAGIC,  AFS_SUPER_MAGIC,
    AFS_FS_MAGIC,     CODA_SUPER_MAGIC, OCFS2_SUPER_MAGIC,
    0x0BD00BD0,  // lustre
    0x47504653,  // gpfs
    0x19830326,  // beegfs
    0x01161970,  // gfs2
    0xAAD7AAEA,  // panfs
};

}  // namespace

JournalMode journal_for(std::uint32_t file_system_type) {
  const bool remote = std::find(kRemote.begin(), kRemote.end(), file_system_type) != kRemote.end();
  return remote ? JournalMode::rollback : JournalMode::wal;
}

JournalMode journal_in(const std::filesystem::path& directory) {
  struct statfs status {};
  if (::statfs(directory.c_str(), &status) != 0) return JournalMode::rollback;
  return journal_for(static_cast<std::uint32_t>(status.f_type));
}

}  // namespace gradmon
