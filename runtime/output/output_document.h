// SPDX-License-Identifier: Apache-2.0
// Output files that are no tables: module_struct.json, stack_info.csv, run-{id}.json.
#pragma once

#include <filesystem>
#include <string>
#include <tl/expected.hpp>

#include "hooks/rows/record_stream.h"
#include "runtime/output/run_directory.h"

namespace gradmon {

// Written beside, as `.new`, and renamed, 0640; the directory is there.
tl::expected<void, std::string> write_and_rename(const std::filesystem::path& place, const std::string& text);

// Written beside and renamed, 0640; where: FORMAT.md. The writer thread: waits
// for the run directory as the first CSV file does.
tl::expected<void, std::string> write_document(RunDirectory& directory, Rank rank,
                                               RecordStream::Document document, const std::string& text);

}  // namespace gradmon
