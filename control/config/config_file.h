// SPDX-License-Identifier: Apache-2.0
// The user's config file: reports its contents and edits it. Used by one thread, the disk thread; it
// starts none. Every call does file I/O and may hang with the file system.
//
// Each save is reported once and complete. A save is a new time stamp or a new content.
// - A file that was renamed into place is reported at once.
// - A file that is written in place is reported when it is closed and unchanged for 100 ms (2 s if its
//   writer does not close it, 1 s if the file system sends no events).
// - An empty or broken file is reported when it is unchanged for 1 s. The parser finds its errors.
// - If saves come faster than four a second, only the last one is reported.
// - A file that cannot be read (EIO, ESTALE, no permission) is reported once, and tried again at every
//   event and every second. An intact file is polled as often, so a longer pause would save nothing.
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
#include "control/config/file_identity.h"
#include "control/config/file_watch.h"
#include "control/config/replace_content.h"

namespace gradmon {

struct EditError {
  enum class Kind {
    changed,     // the file is not the save of `based_on`, or is saved again and again
    invalid,     // the file is not JSON, an edit cannot be set, or `check` refused the result
    unwritable,  // unchanged: it can neither be replaced nor written in place
    unreadable,  // missing, no permission, not a regular file, too large
  };
  Kind kind = Kind::changed;
  std::string text;  // for people
};

class ConfigFile {
 public:
  using Clock = std::function<std::chrono::steady_clock::time_point()>;
  // Key ("eps") or JSON pointer ("/alert/dump"), and the JSON of the new value.
  using Edits = std::vector<std::pair<std::string, std::string>>;
  // Returns the reason why this text must not be written; "" if it may be.
  using Check = std::function<std::string(std::string_view text)>;

  // `spare`: a directory for side files that the config's own directory refuses; "": none.
  explicit ConfigFile(std::filesystem::path path, Clock clock = &std::chrono::steady_clock::now,
                      std::filesystem::path spare = {});
  ~ConfigFile();
  ConfigFile(const ConfigFile&) = delete;
  ConfigFile& operator=(const ConfigFile&) = delete;

  // Call poll() when event_fd() is readable, or after next_poll(). event_fd() is -1 if inotify failed.
  int event_fd() const { return watch_.fd(); }
  std::chrono::milliseconds next_poll() const;

  // Returns the news since the last call: a content, a problem for people (missing, unreadable, not a regular
  // file, too large), or none. Omits contents that edit() wrote.
  std::optional<tl::expected<FileContent, std::string>> poll();

  // Sets the values in this order, as one save, and returns the new content. With `based_on`, fails if the
  // file is no longer that save. Without it, waits for the present content to settle (at most 3 s) and edits
  // that content; if the user saves meanwhile, tries again, five times in total. Never overwrites a user's
  // save, unless the file system cannot exchange files (replace_content.h).
  tl::expected<FileContent, EditError> edit(const Edits& edits, const std::optional<FileIdentity>& based_on,
                                            const Check& check = nullptr);

  // Saves that an earlier job moved aside and that are older than the present save, for people.
  std::vector<std::string> superseded_saves() const;

 private:
  using Time = std::chrono::steady_clock::time_point;

  // An unreported content, and the time since which it is unchanged.
  struct Candidate {
    FileIdentity identity;
    Time since;
    std::chrono::milliseconds pause;  // it must stay unchanged for this time
  };
  struct Observation {
    FileRead read;
    bool known = false;    // already reported, or written by edit()
    bool settled = false;  // its writer has finished
  };
  // A file that an edit has displaced. Another process may still write to it.
  struct DisplacedEntry {
    DisplacedFile displaced;
    Time since;
  };

  tl::expected<Observation, std::string> read_if_changed(Time now);
  bool is_settled(const FileRead& read, Time now);
  void take_events();
  void check_displaced(Time now);
  void release_displaced();
  void recover(Time now);
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
  Recovery recovery_;  // `ours` is the signature of the file that the last edit wrote
  std::optional<Candidate> candidate_;
  std::optional<std::string> problem_;  // the present problem, reported or not
  Time problem_since_;
  bool problem_reported_ = false;
  bool polled_ = false;

  bool may_have_changed_ = true;  // read the file again
  bool replaced_ = false;         // the last event, apart from attributes_changed and closed, was a rename
  bool writing_ = false;          // written to and not yet closed
  bool events_seen_ = false;      // since the last known content
  Time next_stat_;
  Time next_hash_;
  Time recover_at_;     // next recovery: of an earlier job's files, or of a stuck save
  Time recover_until_;  // at least; an earlier job may end just after this one's start
  std::optional<Time> last_report_;
  std::vector<DisplacedEntry> displaced_;
};

}  // namespace gradmon
