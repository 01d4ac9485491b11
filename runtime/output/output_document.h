// SPDX-License-Identifier: Apache-2.0
// Writes the output files that no sink writes, such as module_struct.json, stack_info.csv and run-{id}.json.
#pragma once

#include <filesystem>
#include <string>
#include <tl/expected.hpp>

#include "hooks/rows/record_stream.h"
#include "runtime/output/run_directory.h"

namespace gradmon {

// Writes `{place}.new` (0640) and renames it to `place`. The directory must exist.
tl::expected<void, std::string> write_and_rename(const std::filesystem::path& place, const std::string& text);

// Writes a document to its place (FORMAT.md), like write_and_rename(). Writer thread: may wait for the job's
// identity, see RunDirectory::create().
tl::expected<void, std::string> write_document(RunDirectory& directory, Rank rank,
                                               RecordStream::Document document, const std::string& text);

}  // namespace gradmon
