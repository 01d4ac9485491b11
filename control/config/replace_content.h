// SPDX-License-Identifier: Apache-2.0
// Replaces the content of a file without losing a simultaneous save by a user. The new file is exchanged with
// the old one (RENAME_EXCHANGE), and the displaced file is compared with the content that the edit was based
// on. If they differ, the two files are exchanged back. The displaced file stays beside the target as
// `.NAME.gradmon-prev-…`, the side file, until no process can write to it any more. The new file is
// `.NAME.gradmon-new-…` until it is complete.
// A file that must stay in place (a mount point, a second hard link, another owner, a directory that cannot
// be written) is written in place: only the bytes that differ. Meanwhile `.NAME.gradmon-write-…` has the old
// and the new content, so that the next process can complete the write of a killed one. One thread; does file
// I/O.
#pragma once

#include <chrono>
#include <cstdint>
#include <set>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "control/aliases.h"
#include "control/config/file_content.h"

namespace gradmon {

// A file that was at `target`, the user's path, and now is beside it at `side`.
struct DisplacedFile {
  fs::path target;
  fs::path side;
  FileSignature signature;  // when it was displaced
};

constexpr char kSavedMeanwhile[] = "the file was saved again meanwhile";  // the text of Kind::changed

struct EditError {
  enum class Kind {
    changed,     // the file is not the save that was to be edited, or is saved again and again
    invalid,     // the file is not JSON, an edit cannot be set, or the result is no valid config
    unwritable,  // unchanged: it can neither be replaced nor written in place
    unreadable,  // missing, no permission, not a regular file, too large
    stuck,       // a save could not be restored (`text` names its path), or the file is half written
  };
  Kind kind = Kind::changed;
  std::string text;  // for people
};

// The way to put the new file in place. `rename` compares, then renames; it is also the fallback where the
// file system cannot exchange (NFS). A save between the two is lost.
enum class Replacement : std::uint8_t { exchange, rename };

// Replaces the content of `target` with `wanted` if it still is `base`. `target` must not be a symbolic
// link. Mode, owner, ACL, attributes and links are kept: where a new file cannot have them, the present one
// is written in place. Others cannot open the file during that write if the file system has leases and this
// process may take one (the owner, root); otherwise a save within these microseconds may be mixed up with the
// edit. `spare`: the directory for `.gradmon-write-…` if the target's refuses it; "": none. Fails, with the
// file unchanged, if the file is read-only or not regular. The time stamp of the new content differs from
// that of `base`, and is returned. Displaced files are appended to `displaced`, also on failure. For each of
// them the caller must call restore_if_written() repeatedly for two seconds, and as long as it is open
// elsewhere (or may be: for kMaxDisplacedTime); then discard(). After EditError::Kind::stuck or
// Restored::failed, the caller must call recover_side_files() until it returns LeftOvers::none.
[[nodiscard]] tl::expected<FileRead, EditError> replace_content(const fs::path& target, const FileRead& base,
                                                                const FileContent& wanted,
                                                                std::vector<DisplacedFile>& displaced,
                                                                Replacement how = Replacement::exchange,
                                                                const fs::path& spare = {});

enum class Restored : std::uint8_t {
  no,          // the displaced file was not written to
  yes,         // the target has changed
  superseded,  // the target was saved later; recover_side_files() decides; do not discard()
  failed,      // the save is still in the side file; do not discard() it
};

// If a displaced file was written to, and the target was not saved later, puts the displaced file back at the
// target. `ours` is the signature of our last edit. May append to `displaced`.
Restored restore_if_written(const DisplacedFile& file, const FileSignature& ours,
                            std::vector<DisplacedFile>& displaced);

// The longest time to watch a displaced file that may be open elsewhere.
constexpr std::chrono::seconds kMaxDisplacedTime{60};

// Removes the side file.
void discard(const DisplacedFile& file);

// Yes while another process has the displaced file open and may write to it. Unknown if the file system has
// no leases, or if the file is another user's and this process has no CAP_LEASE.
enum class OpenElsewhere : std::uint8_t { no, yes, unknown };
OpenElsewhere is_open_elsewhere(const DisplacedFile& file);

enum class LeftOvers : std::uint8_t { none, some };

// Input of recover_side_files() about the calling process, and its findings.
struct Recovery {
  std::chrono::seconds age{10};      // younger files may be another live process's
  std::chrono::seconds save_age{2};  // the same, for a user's save
  fs::path spare;                    // as of replace_content()
  std::set<fs::path> watched;        // side files that the caller watches: not touched
  FileSignature ours;                // of the caller's last edit of the target, and the time stamp
  std::int64_t user_save_ns = 0;     // of the user's save on which that edit is based
  std::set<fs::path> superseded;     // out: saves that stay in a side file, as the target is newer
};

// Cleans up the files that killed or ended processes have left beside `target`: completes a write in place,
// puts back a displaced user's save, and removes the other files. Keeps a user's save while the target cannot
// be read, or the save cannot be put back, or if the user has saved the target later. Keeps an open file;
// keeps a possibly open file for kMaxDisplacedTime. Returns whether files were left for a later call.
LeftOvers recover_side_files(const fs::path& target, Recovery& recovery);

}  // namespace gradmon
