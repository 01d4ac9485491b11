// SPDX-License-Identifier: Apache-2.0
// How hubs and clients find each other: small files in a directory to which other users may also write. A
// file is trusted if it is a regular file of at most 64 KiB that belongs to this user or root and that others
// cannot write. Does not follow symbolic links; refuses a FIFO or a device, without waiting.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "control/aliases.h"

namespace gradmon {

// Returns "" without a trusted file.
std::string read_trusted_file(const fs::path& file);
// Replaces the file by rename, unless it already has this content. Makes the directory.
Result<void> replace_trusted_file(const fs::path& file, const std::string& text);

// The entry of a job, $OUT/.gradmon/jobs/{job}.json, locates its lead hub. Each job has its own file, so jobs
// with the same output directory never overwrite each other's entry. Hubs of other hosts find the lead hub by
// it, and gradmonctl finds jobs. The lead hub writes or touches its entry every 2 s; a killed job leaves its
// entry behind. Ages follow the clock that sets the times of the directory's files: on NFS the server's.
// Any process, any thread.
struct JobEntry {
  std::string epoch;
  std::string launch_id;
  std::string name;  // for people; "" if none was given
  std::string host;
  std::string endpoint;      // "ipc://PATH", valid on that host only
  std::string address;       // "tcp://HOST:PORT" for other hosts; "": the lead hub does not listen
  std::string key = {};      // public key of the address (Z85); "": keys are made by hand, or missing
  std::int64_t started = 0;  // ms since 1970
  std::string trouble = {};  // the reason why the lead hub does not listen although it should, or ""
};

// $OUT/.gradmon/jobs
fs::path jobs_directory(const fs::path& output_dir);

std::string to_text(const JobEntry& job);
// Accepts any bytes; nullopt if they are not a JSON object.
std::optional<JobEntry> parse_entry(const std::string& text);

// The job of an entry that was not touched for this time has ended.
inline constexpr std::chrono::seconds kEntryLifetime{30};

// The entries that have an endpoint and are younger than `max_age`, the oldest job first; empty without a
// directory. If this process cannot write into the directory, counts ages from the newest entry.
std::vector<JobEntry> read_entries(const fs::path& output_dir, std::chrono::seconds max_age = kEntryLifetime);
// The entry of one launch, of any age.
std::optional<JobEntry> find_entry(const fs::path& output_dir, const std::string& launch_id);

// Writes the entry by rename; touches the file if it already has this content.
Result<void> write_entry(const fs::path& output_dir, const JobEntry& job);
// Removes the entry if it is of the same epoch.
void remove_entry(const fs::path& output_dir, const JobEntry& job);
// Removes the entries that are older than `min_age`; returns their launches.
std::vector<std::string> remove_old_entries(const fs::path& output_dir,
                                            std::chrono::seconds min_age = std::chrono::hours{7 * 24});

// The note of a hub on a host without rank 0: its public key, so that the lead hub admits it. In the output
// directory each note is a file beside the job's entry, $OUT/.gradmon/jobs/{job}.{16 hex digits}.hub. In
// training's store the note is the same text. Any process, any thread.
struct HubNote {
  std::string launch_id;
  std::string host;  // for people
  std::string key;   // Z85
};

std::string to_text(const HubNote& note);
// Accepts any bytes; nullopt if they are not a note of this launch.
std::optional<HubNote> parse_note(const std::string& text, const std::string& launch_id);

Result<void> write_note(const fs::path& output_dir, const HubNote& note);
void remove_note(const fs::path& output_dir, const HubNote& note);

// Reads the notes in the output directory whose file names are not in `seen`, and adds the names to it.
std::vector<HubNote> read_new_notes(const fs::path& output_dir, const std::string& launch_id,
                                    std::set<std::string>& seen);
void remove_notes(const fs::path& output_dir, const std::string& launch_id);

enum class Loopback { refused, accepted };

// The numeric address of this host that is the source of packets to `host`. If `host` cannot be resolved or
// resolves to a loopback address that is refused: the first address of an interface that is up. "": this host
// has only loopback addresses. Resolves a name, which may take long.
std::string local_address_towards(const std::string& host, Loopback loopback = Loopback::refused);

// The pause before a hub reads the process group's store again, after reading it for `elapsed`. Other hubs
// usually start within seconds. Unset after a minute: from then on a hub finds others by directory only.
inline std::optional<std::chrono::milliseconds> store_poll_interval(
    std::chrono::steady_clock::duration elapsed) {
  if (elapsed > std::chrono::seconds{60}) return {};
  return std::chrono::milliseconds{elapsed < std::chrono::seconds{3} ? 250 : 1000};
}

// The pause of a new hub before it first reads the store. If the launcher reports a single host, all ranks
// usually have one hub.
inline std::chrono::milliseconds store_poll_delay(std::optional<bool> several_hosts) {
  return std::chrono::milliseconds{several_hosts == false ? 1000 : 0};
}

}  // namespace gradmon
