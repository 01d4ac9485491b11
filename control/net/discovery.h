// SPDX-License-Identifier: Apache-2.0
// gradmon.json in the output directory: which jobs can be asked, and where. The
// ranks of a job find rank 0 by it, gradmonctl finds jobs. Ranks without that
// directory find the same entry in training's store, under their launcher id.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "control/net/shared_store.h"

namespace gradmon {

struct JobEntry {
  std::string epoch;
  std::string launcher_id;
  std::string endpoint;  // "": it has no network
  std::string state_endpoint;
  std::string host;
  std::int64_t pid = 0;
  std::uint64_t process_start = 0;
  std::int64_t started = 0;  // ms since 1970
  std::string trouble = {};  // why it has no network
};

// All entries; none where there is no file. Any process, any thread.
tl::expected<std::vector<JobEntry>, std::string> read_jobs(const std::filesystem::path& output_dir);

// Those that can be asked: their process is not known to be gone (it runs on this
// host, or elsewhere) and has a network.
std::vector<JobEntry> live_jobs(std::vector<JobEntry> jobs);

// Adds an entry, and removes those whose process on this host is gone, with
// what they left behind (their socket directory, where `job` has not taken their
// place in it). Whole file, by rename, under a lock file.
tl::expected<void, std::string> add_job(const std::filesystem::path& output_dir, const JobEntry& job);
tl::expected<void, std::string> remove_job(const std::filesystem::path& output_dir, const std::string& epoch);

// Of those of one launch whose process is not known to be gone, the newest.
std::optional<JobEntry> newest_job(std::vector<JobEntry> jobs, const std::string& launcher_id);

// "" or why this process cannot reach that rank 0: it has no network, or its
// socket is a file of another host.
std::string out_of_reach(const JobEntry& job);

tl::expected<void, std::string> put_job(SharedStore& store, const JobEntry& job);
tl::expected<std::optional<JobEntry>, std::string> get_job(SharedStore& store,
                                                           const std::string& launcher_id);

}  // namespace gradmon
