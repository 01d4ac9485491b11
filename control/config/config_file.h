// SPDX-License-Identifier: Apache-2.0
// The user's config file: reports its contents and edits it. Used by one thread, the disk thread; it
// starts none. Every call does file I/O and may hang with the file system.
//
// Each save is reported once and complete, with its config. A save is a new time stamp or a new content. Each
// content is parsed once.
// - A file that was renamed into place is reported at once.
// - A file that is written in place is reported when it is closed and unchanged for 100 ms (2 s if its
//   writer does not close it, 1 s if the file system sends no events).
// - An empty or broken file is reported when it is unchanged for 1 s.
// - If saves come faster than four a second, only the last one is reported.
// - A file that cannot be read (EIO, ESTALE, no permission) is reported once, and tried again at every
//   event and every second. An intact file is polled as often, so a longer pause would save nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "control/aliases.h"
#include "control/config/file_content.h"
#include "control/config/json_text.h"
#include "control/config/replace_content.h"
#include "control/files/descriptor.h"

namespace gradmon {

enum class FileEvent : std::uint8_t {
  replaced,            // a complete file was renamed to this name
  written,             // bytes or length changed
  closed,              // closed by a process that had it open for writing
  attributes_changed,  // attributes changed, or the time stamp
  other,               // created, perhaps not yet written, or removed
  events_lost,         // events were lost, or a directory went away: anything may have happened
};

// Reports changes of a path: inotify on the directory of the file and of every symbolic link on the way
// to it, because files and links are replaced by rename. Network and overlay file systems may send no
// events, so the caller must poll the file as well. One thread.
class FileWatch {
 public:
  explicit FileWatch(fs::path path);

  // Readable when events have arrived; -1 if inotify failed (logged once).
  int fd() const { return fd_.get(); }

  // Watches the present links. Call it before each read of the file.
  void update_watches();

  // Returns the events of the file and its links since the last call, in order. Never blocks.
  std::vector<FileEvent> read_events();

 private:
  void watch(const fs::path& directory, const std::string& name);

  const fs::path path_;
  const Descriptor fd_;
  std::map<int, std::set<std::string>> names_;  // names watched, by watch descriptor
};

class ConfigFile {
 public:
  using Clock = std::function<std::chrono::steady_clock::time_point()>;
  using Edits = JsonEdits;
  // Called before a text with this hash is written.
  using BeforeWrite = std::function<void(const std::string& sha256)>;

  // `spare`: a directory for side files that the config's own directory refuses; "": none.
  explicit ConfigFile(fs::path path, Clock clock = &std::chrono::steady_clock::now, fs::path spare = {});
  ~ConfigFile();
  ConfigFile(const ConfigFile&) = delete;
  ConfigFile& operator=(const ConfigFile&) = delete;

  // Call poll() when event_fd() is readable, or after next_poll(). event_fd() is -1 if inotify failed.
  int event_fd() const { return watch_.fd(); }
  std::chrono::milliseconds next_poll() const;

  // Returns the news since the last call: a content, a problem for people (missing, unreadable, not a regular
  // file, too large), or none. Omits contents that edit() wrote.
  std::optional<Result<FileContent>> poll();

  // Sets the values in this order, as one save, and returns the new content. With `based_on`, fails if the
  // file is no longer that save. Without it, waits for the present content to settle (at most 3 s) and edits
  // that content; if the user saves meanwhile, tries again, five times in total. Never overwrites a user's
  // save, unless the file system cannot exchange files (replace_content.h).
  tl::expected<FileContent, EditError> edit(const Edits& edits, const std::optional<FileIdentity>& based_on,
                                            const BeforeWrite& before_write = nullptr);

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

  // A text and its config.
  struct Parsed {
    std::string sha256;
    JsonText json;
    std::shared_ptr<const ConfigResult> config;
  };

  Result<Observation> read_if_changed(Time now);
  const JsonText& parse(FileContent& content);
  bool is_settled(FileRead& read, Time now);
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
                                                 const BeforeWrite& before_write);

  const fs::path path_;
  const Clock clock_;
  FileWatch watch_;

  std::optional<Parsed> parsed_;  // the text parsed last
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
