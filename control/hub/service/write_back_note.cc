// SPDX-License-Identifier: Apache-2.0
#include "control/hub/service/write_back_note.h"

#include <unistd.h>

#include <nlohmann/json.hpp>
#include <system_error>

#include "control/files/durable_file.h"
#include "control/files/make_directories.h"
#include "control/hub/rendezvous/trusted_file.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

fs::path whole_path(const fs::path& path) {
  std::error_code error;
  const fs::path whole = fs::absolute(path, error);
  return (error ? path : whole).lexically_normal();
}

}  // namespace

WriteBackNote::WriteBackNote(const fs::path& output_dir, const fs::path& config_path)
    : note_(output_dir / ".gradmon" / "writeback.json"), config_path_(whole_path(config_path)) {}

tl::expected<void, std::string> WriteBackNote::write(const FileIdentity& save) const {
  const Json note{{"config", config_path_.string()},
                  {"mtime_ns", save.mtime_ns},
                  {"size", save.size},
                  {"sha256", save.sha256}};
  const std::string text = note.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  if (read_trusted_file(note_) == text) return {};
  if (auto made = make_directories(note_.parent_path()); !made) return made;
  auto replaced = replace_file(note_, text, 0640);
  if (replaced) sync_directory(note_.parent_path());
  return replaced;
}

std::optional<FileIdentity> WriteBackNote::read() const {
  try {
    const Json note = Json::parse(read_trusted_file(note_));
    if (note.at("config") != config_path_.string()) return std::nullopt;
    return FileIdentity{note.at("mtime_ns").get<std::int64_t>(), note.at("size").get<std::uint64_t>(),
                        note.at("sha256").get<std::string>()};
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

void WriteBackNote::remove() const { ::unlink(note_.c_str()); }

}  // namespace gradmon
