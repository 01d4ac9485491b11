// SPDX-License-Identifier: Apache-2.0
// The note of a hub on a host without rank 0: its public key, so that the lead hub admits it. In the output
// directory each note is a file beside the job's entry, $OUT/.gradmon/jobs/{job}.{16 hex digits}.hub, read
// as trusted_file.h says. In training's store the note is the same text. Any process, any thread.
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
// Accepts any bytes; nullopt if they are not a note of this launch.
std::optional<HubNote> parse_note(const std::string& text, const std::string& launch_id);

tl::expected<void, std::string> write_note(const std::filesystem::path& output_dir, const HubNote& note);
void remove_note(const std::filesystem::path& output_dir, const HubNote& note);

// Reads the notes in the output directory whose file names are not in `seen`, and adds the names to it.
std::vector<HubNote> read_new_notes(const std::filesystem::path& output_dir, const std::string& launch_id,
                                    std::set<std::string>& seen);
void remove_notes(const std::filesystem::path& output_dir, const std::string& launch_id);

}  // namespace gradmon
