// SPDX-License-Identifier: Apache-2.0
#include "control/hub/rendezvous/hub_note.h"

#include <unistd.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "control/host/job_directory.h"
#include "control/host/json_field.h"
#include "control/hub/rendezvous/job_entry.h"
#include "control/hub/rendezvous/trusted_file.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::size_t kMostNotes = 20'000;
constexpr std::string_view kExtension = ".hub";
constexpr std::size_t kHashDigits = 16;

fs::path file_of(const fs::path& output_dir, const HubNote& note) {
  // The hash of the key makes the name unique, even among hosts of the same name.
  static constexpr char digits[] = "0123456789abcdef";
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : note.key) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  std::string hex;
  for (int shift = 60; shift >= 0; shift -= 4) hex += digits[(hash >> static_cast<unsigned>(shift)) & 15U];
  return jobs_directory(output_dir) / (job_file_name(note.launch_id) + "." + hex + std::string(kExtension));
}

void each_note(const fs::path& output_dir, const std::string& launch_id,
               const std::function<void(const fs::path&)>& take) {
  const std::string beginning = job_file_name(launch_id) + ".";
  std::error_code error;
  std::size_t looked_at = 0;
  for (fs::directory_iterator at(jobs_directory(output_dir), error), end; !error && at != end;
       at.increment(error)) {
    if (++looked_at > kMostNotes) return;
    const std::string name = at->path().filename().string();
    // Checks the length, too: names of another job's notes may begin with this job's name and a dot.
    const bool of_job = name.size() == beginning.size() + kHashDigits + kExtension.size();
    if (of_job && name.rfind(beginning, 0) == 0 && at->path().extension() == kExtension) take(at->path());
  }
}

}  // namespace

std::string to_text(const HubNote& note) {
  const Json json{{"launch_id", note.launch_id}, {"host", note.host}, {"key", note.key}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::optional<HubNote> parse_note(const std::string& text, const std::string& launch_id) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return {};
  HubNote note{field<std::string>(json, "launch_id"), field<std::string>(json, "host"),
               field<std::string>(json, "key")};
  if (note.launch_id != launch_id || note.key.empty()) return {};
  return note;
}

tl::expected<void, std::string> write_note(const fs::path& output_dir, const HubNote& note) {
  return replace_trusted_file(file_of(output_dir, note), to_text(note));
}

void remove_note(const fs::path& output_dir, const HubNote& note) {
  unlink(file_of(output_dir, note).c_str());
}

std::vector<HubNote> read_new_notes(const fs::path& output_dir, const std::string& launch_id,
                                    std::set<std::string>& seen) {
  std::vector<HubNote> notes;
  each_note(output_dir, launch_id, [&](const fs::path& file) {
    if (seen.count(file.filename().string()) != 0) return;
    auto note = parse_note(read_trusted_file(file), launch_id);
    if (!note) return;
    seen.insert(file.filename().string());
    notes.push_back(std::move(*note));
  });
  return notes;
}

void remove_notes(const fs::path& output_dir, const std::string& launch_id) {
  each_note(output_dir, launch_id, [](const fs::path& file) { unlink(file.c_str()); });
}

}  // namespace gradmon
