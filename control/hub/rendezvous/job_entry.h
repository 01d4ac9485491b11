// SPDX-License-Identifier: Apache-2.0
// The entry of a job, $OUT/.gradmon/jobs/{job}.json, locates its lead hub. Each job has its own file, so jobs
// with the same output directory never overwrite each other's entry. Hubs of other hosts find the lead hub by
// it, and gradmonctl finds jobs. The lead hub writes or touches its entry every 2 s; a killed job leaves its
// entry behind. Ages follow the clock that sets the times of the directory's files: on NFS the server's.
// Files are read as trusted_file.h says. Any process, any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <vector>

namespace gradmon {

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
std::filesystem::path jobs_directory(const std::filesystem::path& output_dir);

std::string to_text(const JobEntry& job);
// Accepts any bytes; nullopt if they are not a JSON object.
std::optional<JobEntry> parse_entry(const std::string& text);

// The job of an entry that was not touched for this time has ended.
inline constexpr std::chrono::seconds kEntryLifetime{30};

// The entries that have an endpoint and are younger than `max_age`, the oldest job first; empty without a
// directory. If this process cannot write into the directory, counts ages from the newest entry.
std::vector<JobEntry> read_entries(const std::filesystem::path& output_dir,
                                   std::chrono::seconds max_age = kEntryLifetime);
// The entry of one launch, of any age.
std::optional<JobEntry> find_entry(const std::filesystem::path& output_dir, const std::string& launch_id);

// Writes the entry by rename; touches the file if it already has this content.
tl::expected<void, std::string> write_entry(const std::filesystem::path& output_dir, const JobEntry& job);
// Removes the entry if it is of the same epoch.
void remove_entry(const std::filesystem::path& output_dir, const JobEntry& job);
// Removes the entries that are older than `min_age`; returns their launches.
std::vector<std::string> remove_old_entries(const std::filesystem::path& output_dir,
                                            std::chrono::seconds min_age = std::chrono::hours{7 * 24});

}  // namespace gradmon
