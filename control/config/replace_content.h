// SPDX-License-Identifier: Apache-2.0
// Replaces the content of a file without losing a save that somebody makes at the same time. The new
// file is exchanged with the old one (RENAME_EXCHANGE), and the displaced file is compared with the
// content that the edit was based on. If they differ, the two files are exchanged back. The displaced
// file stays beside the target as `.NAME.gradmon-prev-…`, the side file, until nobody can write to it
// any more. The new file is `.NAME.gradmon-new-…` until it is complete.
// One thread; does file I/O.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <vector>

#include "control/config/file_content.h"

namespace gradmon {

// A file that was at `target`, the user's path, and now is beside it at `side`.
struct DisplacedFile {
  std::filesystem::path target;
  std::filesystem::path side;
  FileSignature signature;  // when it was displaced
};

constexpr char kSavedMeanwhile[] = "the file was saved again meanwhile";  // the text of Kind::changed

struct ExchangeError {
  enum class Kind {
    changed,     // somebody has saved the file; that save is in place
    unwritable,  // the file is unchanged; `text` says why
    stuck,       // somebody has saved the file; that save could not be restored. `text` names its path
  };
  Kind kind = Kind::changed;
  std::string text;
};

// How the new file is put in place. `rename` compares, then renames; it is also the fallback where the
// file system cannot exchange (NFS). A save between the two is lost.
enum class Replacement : std::uint8_t { exchange, rename };

// Replaces the content of `target` with `text` if it still is `base`. `target` must not be a symbolic
// link. Mode, owner, ACL and attributes are kept. Fails, with the file unchanged, if they cannot be
// kept, or if the file is read-only, has a second link, or is not regular. The time stamp of the new
// file differs from that of `base`. Displaced files are appended to `displaced`, also on failure. For
// each of them the caller must call restore_if_written() repeatedly for two seconds and, up to a minute,
// while it is open elsewhere; then discard(). After ExchangeError::Kind::stuck or Restored::failed, the
// caller must call recover_side_files() until it returns LeftOvers::none.
[[nodiscard]] tl::expected<FileRead, ExchangeError> replace_content(const std::filesystem::path& target,
                                                                    const FileRead& base,
                                                                    std::string_view text,
                                                                    std::vector<DisplacedFile>& displaced,
                                                                    Replacement how = Replacement::exchange);

enum class Restored : std::uint8_t {
  no,      // the target is unchanged
  yes,     // the target has changed
  failed,  // the save is still in the side file; do not discard() it
};

// If somebody has written to a displaced file, and nobody has saved the target later, puts the displaced
// file back at the target. `ours` is the signature of our last edit. May append to `displaced`.
Restored restore_if_written(const DisplacedFile& file, const FileSignature& ours,
                            std::vector<DisplacedFile>& displaced);

// The longest time that a displaced file is watched while somebody has it open.
constexpr std::chrono::seconds kMaxDisplacedTime{60};

// Removes the side file.
void discard(const DisplacedFile& file);

// Whether somebody still has the displaced file open, and may write to it. Also true if that cannot be
// known: the file system has no leases, or the file is another user's and this process has no CAP_LEASE.
bool is_open_elsewhere(const DisplacedFile& file);

enum class LeftOvers : std::uint8_t { none, some };

// Cleans up the files, older than `age`, that a killed process has left beside `target`: puts back a
// displaced save of the user's, and removes the other files. A save of the user's stays while the target
// cannot be read, or the save cannot be put back. A file that somebody still has open stays for another
// kMaxDisplacedTime, because the process that displaced it may be alive and watching it. Returns whether
// files were left for a later call.
LeftOvers recover_side_files(const std::filesystem::path& target, std::chrono::seconds age);

}  // namespace gradmon
