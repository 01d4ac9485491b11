// SPDX-License-Identifier: Apache-2.0
#include "writers/sinks/sqlite/journal_choice.h"

#include <linux/magic.h>

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

using namespace gradmon;

TEST_CASE("network file systems and FUSE get a rollback journal, others a write-ahead log") {
  for (const std::uint32_t type : {std::uint32_t{NFS_SUPER_MAGIC}, std::uint32_t{SMB_SUPER_MAGIC},
                                   0xFF534D42U, 0xFE534D42U, std::uint32_t{FUSE_SUPER_MAGIC},
                                   std::uint32_t{V9FS_MAGIC}, std::uint32_t{CEPH_SUPER_MAGIC}, 0x0BD00BD0U})
    CHECK(journal_for(type) == JournalMode::rollback);
  for (const std::uint32_t type :
       {std::uint32_t{EXT4_SUPER_MAGIC}, std::uint32_t{XFS_SUPER_MAGIC}, std::uint32_t{TMPFS_MAGIC},
        std::uint32_t{BTRFS_SUPER_MAGIC}, std::uint32_t{OVERLAYFS_SUPER_MAGIC}})
    CHECK(journal_for(type) == JournalMode::wal);
}

TEST_CASE("the file system of a directory decides") {
  CHECK(journal_in("/proc") == JournalMode::wal);
  CHECK(journal_in("/no/such/directory") == JournalMode::rollback);
}
