// SPDX-License-Identifier: Apache-2.0
// What the hub of a host without rank 0 leaves for the lead hub, so that it is let in: its
// public key. In the output directory that is a file of its own beside the job's entry,
// $OUT/.gradmon/jobs/{job}.{16 hex digits}.hub, read as trusted_file.h says; in training's
// store it is the same text. Any process, any thread.
#pragma once

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <tl/expected.hpp>
#include <vector>

namespace gradmon {

struct HubNote {
  std::string launch_id;
  std::string host;  // for people
  std::string key;   // Z85
};

std::string to_text(const HubNote& note);
// Of whatever bytes; none where it is not of that launch.
std::optional<HubNote> parse_note(const std::string& text, const std::string& launch_id);

tl::expected<void, std::string> keep_note(const std::filesystem::path& output_dir, const HubNote& note);
void remove_note(const std::filesystem::path& output_dir, const HubNote& note);

// Those in the output directory, each file once: `seen` holds the names of the files read.
std::vector<HubNote> read_new_notes(const std::filesystem::path& output_dir, const std::string& launch_id,
                                    std::set<std::string>& seen);
void remove_notes(const std::filesystem::path& output_dir, const std::string& launch_id);

}  // namespace gradmon
