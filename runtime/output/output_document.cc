// SPDX-License-Identifier: Apache-2.0
#include "runtime/output/output_document.h"

#include <system_error>

#include "control/files/durable_file.h"
#include "control/files/make_directories.h"

namespace gradmon {
namespace {

namespace fs = std::filesystem;

tl::expected<fs::path, std::string> place_of(RunDirectory& directory, Rank rank,
                                             RecordStream::Document document) {
  if (document == RecordStream::Document::stack_info) {
    return directory.create() / "stack_info.csv";
  }
  const fs::path folder = directory.output_dir() / "module_struct" / ("rank" + std::to_string(rank.value));
  if (auto made = make_directories(folder); !made) return tl::unexpected(made.error());
  return folder / "module_struct.json";
}

}  // namespace

tl::expected<void, std::string> write_and_rename(const fs::path& place, const std::string& text) {
  const fs::path beside = place.string() + ".new";
  if (auto written = write_durably(beside, text); !written) return written;
  std::error_code error;
  fs::rename(beside, place, error);
  if (error) return tl::unexpected(place.string() + ": " + error.message());
  return {};
}

tl::expected<void, std::string> write_document(RunDirectory& directory, Rank rank,
                                               RecordStream::Document document, const std::string& text) {
  const auto place = place_of(directory, rank, document);
  if (!place) return tl::unexpected(place.error());
  return write_and_rename(*place, text);
}

}  // namespace gradmon
