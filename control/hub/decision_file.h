// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "control/agree/decision_log.h"
#include "control/aliases.h"
#include "control/files/descriptor.h"

namespace gradmon {

// The decision log of one epoch, a file in the job's directory. That directory is in memory (tmpfs), so the
// log survives the hub but not the host. Entries have a length and a check sum; reading ends at the first
// incomplete one. Space is reserved in advance, so that a full file system is noticed before an entry must be
// written. A large log is rewritten without the plans of old revisions: see compacted(). One thread.
class DecisionFile : public DecisionLog {
 public:
  struct Opened {
    std::unique_ptr<DecisionFile> file;
    JobIdentity identity;           // of the log's owner
    std::vector<LogEntry> entries;  // of the previous hub
  };

  struct Bounds {
    std::int64_t most_bytes = 256 << 20;  // of the file
    std::int64_t compact_at = 16 << 20;   // or at twice the last compacted size, if that is more
  };

  // Continues the epoch in the file if it is of the same launch; otherwise starts `fresh` and replaces the
  // file. Refuses a file of more than `most_bytes`; append() refuses an entry that does not fit.
  static Result<Opened> open(const fs::path& path, JobIdentity fresh, Bounds bounds);
  static Result<Opened> open(const fs::path& path, JobIdentity fresh) {
    return open(path, std::move(fresh), Bounds());
  }

  Result<void> append(const LogEntry& entry) override;

  // True if the path still names this file. If not, relink() writes the whole log to the path again, from the
  // removed file. A file that another hub has put there stays.
  bool is_at_its_path() const;
  Result<void> relink();
  // Writes the whole log to another path, for a hub that continues the epoch there.
  Result<void> copy_to(const fs::path& path) const;

 private:
  DecisionFile(fs::path path, Descriptor file, std::int64_t end, Bounds bounds)
      : path_(std::move(path)),
        bounds_(bounds),
        file_(std::move(file)),
        end_(end),
        compact_at_(bounds.compact_at) {}
  Result<void> append(std::string_view bytes);
  Result<void> reserve(std::int64_t bytes);
  // Writes `whole` to a new file beside the log. `put` (link or rename) then gives that file the log's name.
  // On false, errno has the cause, and nothing has changed.
  bool replace(const std::string& whole, int (*put)(const char* beside, const char* path));
  void compact_if_due() noexcept;
  void compact();

  const fs::path path_;
  const Bounds bounds_;
  Descriptor file_;
  std::int64_t end_;           // of the last complete entry
  std::int64_t reserved_ = 0;  // end of the reserved space
  std::int64_t compact_at_;    // the size at which to compact next
};

}  // namespace gradmon
