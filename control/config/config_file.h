// SPDX-License-Identifier: Apache-2.0
// The user's config file: whole contents out, edits in. A resource that
// belongs to one thread (the disk thread) and has none of its own; every call
// does file I/O and may hang with the file system.
//
// A save is seen once and whole: a file that was renamed into place at once,
// one that is written in place after it was closed and two reads 100 ms apart
// were equal (where no events come: two polls). What is empty or broken is kept
// back for a second, and then reported like any other content: what is wrong
// with it the parser says. A save is a new time stamp or a new content. Where
// saves come faster than four a second the last one counts. What cannot be read
// (EIO, ESTALE, no permission) is reported once and tried again with every event
// and every second, as a sound file is looked at: a longer pause would save
// nothing and see its return late.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

#include "control/config/file_content.h"
#include "control/config/file_exchange.h"
#include "control/config/file_identity.h"
#include "control/config/file_watch.h"

namespace gradmon {

struct EditError {
  enum class Kind {
    changed,     // the file is not, or no longer, the save that the edit was for
    invalid,     // it is no JSON, an edit does not fit in, or `check` refused the outcome
    unwritable,  // left alone: it cannot be replaced, or not without losing owner, mode or links
    unreadable,  // missing, not a regular file, too large
  };
  Kind kind = Kind::changed;
  std::string text;  // for people
};

class ConfigFile {
 public:
  using Clock = std::function<std::chrono::steady_clock::time_point()>;
  // Key ("eps") or JSON pointer ("/alert/dump"), and the JSON of the new value.
  using Edits = std::vector<std::pair<std::string, std::string>>;
  // What speaks against writing this text; "" where nothing does.
  using Check = std::function<std::string(std::string_view text)>;

  explicit ConfigFile(std::filesystem::path path, Clock clock = &std::chrono::steady_clock::now);
  ~ConfigFile();
  ConfigFile(const ConfigFile&) = delete;
  ConfigFile& operator=(const ConfigFile&) = delete;

  // Wait for POLLIN on this, and no longer than that; -1: the time alone.
  int event_fd() const { return watch_.fd(); }
  std::chrono::milliseconds next_poll() const;

  // What is new since the last call: a content, a problem (missing, unreadable,
  // not a regular file, too large), or nothing. Its own edits are not reported.
  std::optional<tl::expected<FileContent, std::string>> poll();

  // Replaces or inserts values, in this order, as one save, and returns the
  // file as it is afterwards. With `based_on` only where the file still is that
  // save. Without it whatever is there now is edited, again where the user saves
  // in between (five times at most). A user's save always wins.
  tl::expected<FileContent, EditError> edit(const Edits& edits, const std::optional<FileIdentity>& based_on,
                                            const Check& check = nullptr);

 private:
  using Time = std::chrono::steady_clock::time_point;

  // A content that is not known yet, and since when it has not changed.
  struct Candidate {
    FileIdentity identity;
    Time since;
    std::chrono::milliseconds pause;  // between two equal reads
  };
  struct Look {
    FileRead read;
    bool known = false;    // reported before, or written by ourselves
    bool settled = false;  // nobody is in the middle of writing it
  };
  // A file that an edit has displaced: somebody may still be writing it.
  struct Watched {
    Displaced displaced;
    Time since;
  };

  tl::expected<Look, std::string> look(Time now);
  bool is_settled(const FileRead& read, Time now);
  void take_events();
  void check_displaced(Time now);
  void release_displaced();
  std::optional<std::string> report_problem(const std::string& problem, Time now);
  void remember(const FileRead& read);
  tl::expected<FileRead, EditError> present_content() const;
  tl::expected<FileRead, EditError> settled_content();
  tl::expected<FileContent, EditError> edit_once(const Edits& edits,
                                                 const std::optional<FileIdentity>& based_on,
                                                 const Check& check);

  const std::filesystem::path path_;
  const Clock clock_;
  FileWatch watch_;

  std::optional<FileIdentity> known_;
  FileSignature known_signature_;
  FileSignature own_signature_;  // of the last edit
  std::optional<Candidate> candidate_;
  std::optional<std::string> problem_;  // present, reported or not
  Time problem_since_;
  bool problem_reported_ = false;
  bool polled_ = false;

  bool may_have_changed_ = true;  // events say that the content may be another
  bool replaced_ = false;     // the last event was a rename into place
  bool writing_ = false;      // written to and not yet closed
  bool events_seen_ = false;  // since the last content that was known
  Time next_stat_;
  Time next_hash_;
  Time recover_at_;  // again: what was left by a process killed just before the start
  std::optional<Time> last_report_;
  std::vector<Watched> displaced_;
};

}  // namespace gradmon
