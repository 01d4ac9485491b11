// SPDX-License-Identifier: Apache-2.0
// Where a job's lead hub is: $OUT/.gradmon/jobs/{job}.json, one file a job, so that
// jobs with one output directory never write each other's. Hubs of other hosts find
// the lead by it, gradmonctl finds jobs. Files are read as trusted_file.h says. Any
// process, any thread.
#pragma once

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
  std::string name;      // for people; "" if none was given
  std::string host;
  std::string endpoint;  // "ipc://PATH", on that host alone
  std::string address;   // "tcp://HOST:PORT" for other hosts; "": it does not listen
  std::string key = {};      // what the address is known by (Z85); "": keys are made by hand, or there are none
  std::int64_t started = 0;  // ms since 1970
  std::string trouble = {};  // why it does not listen, where it was to
};

std::string to_text(const JobEntry& job);
// Of whatever bytes.
std::optional<JobEntry> parse_entry(const std::string& text);

// All entries; none where there is no directory.
std::vector<JobEntry> read_jobs(const std::filesystem::path& output_dir);
// The entry of one launch.
std::optional<JobEntry> find_job(const std::filesystem::path& output_dir, const std::string& launch_id);

// Writes the entry, by rename, unless it stands there already.
tl::expected<void, std::string> keep_job(const std::filesystem::path& output_dir, const JobEntry& job);
// Where it is that epoch's.
void remove_job(const std::filesystem::path& output_dir, const JobEntry& job);

}  // namespace gradmon
