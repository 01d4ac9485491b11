// SPDX-License-Identifier: Apache-2.0
// Puts a new content in the place of a file that somebody else may be saving
// at the same time, so that his save is never lost: the new file is exchanged
// with the old one, and what came out is looked at. Where it is not what the
// edit was based on, it goes back. What was displaced stays beside the file as
// `.NAME.gradmon-prev-…` until it is certain that nobody still writes to it; the
// new file is `.NAME.gradmon-new-…` until it is whole.
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

// A file that has come out of the user's path, beside it under `side`.
struct Displaced {
  std::filesystem::path target;
  std::filesystem::path side;
  FileSignature signature;  // as it came out
};

struct ExchangeError {
  enum class Kind {
    changed,     // somebody has saved; his save is in place
    unwritable,  // not touched: why is in the text
  };
  Kind kind = Kind::changed;
  std::string text;
};

// How the new file gets into place. `rename` is taken by itself where the file
// system cannot exchange (NFS): compare, then rename.
enum class Replacement : std::uint8_t { exchange, rename };

// Replaces the content of `target`, which is no link, with `text` if it still
// is `base`. Mode, owner, ACL and attributes are kept, or it is left alone; so
// is what is read-only, has a second link, or is not a regular file. The time
// stamp of the new file differs from that of `base`. Whatever was displaced,
// also in vain, is appended to `displaced`: to be asked for with
// put_back_if_written for two seconds and, up to a minute, while it is open
// elsewhere; then given to discard.
[[nodiscard]] tl::expected<FileRead, ExchangeError> replace_content(const std::filesystem::path& target,
                                                                    const FileRead& base,
                                                                    std::string_view text,
                                                                    std::vector<Displaced>& displaced,
                                                                    Replacement how = Replacement::exchange);

// Where somebody has written to a displaced file, and nobody has saved the
// target later, the written file becomes the target again. `ours` is what we
// have put there last. True where the target has changed; `displaced` may grow.
bool put_back_if_written(const Displaced& file, const FileSignature& ours, std::vector<Displaced>& displaced);

// For so long a displaced file that somebody has open is looked after.
constexpr std::chrono::seconds kDisplacedAtMost{60};

// Removes the side file.
void discard(const Displaced& file);

// Somebody still has the displaced file open, and may write to it. Also true
// where that cannot be known: the file is another user's, and there is no CAP_LEASE.
bool is_open_elsewhere(const Displaced& file);

enum class LeftOvers : std::uint8_t { none, some };

// What a process that was killed has left beside `target`, if it is older than
// `age`: a save of the user that was displaced goes back, the rest is removed. A
// file that somebody still has open is left for kDisplacedAtMost more: the process
// that displaced it may be alive and wait for it. Returns whether files were left
// for a later call.
LeftOvers recover_displaced(const std::filesystem::path& target, std::chrono::seconds age);

}  // namespace gradmon
