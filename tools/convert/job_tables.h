// SPDX-License-Identifier: Apache-2.0
// The tables of a merged database that describe its job (CONVERT.md).
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tools/convert/job_runs.h"
#include "tools/convert/start_writer.h"
#include "writers/sqlite/sqlite_database.h"

namespace gradmon {

// The copied extent, by index of the run and rank. A rank may have several directories in a run.
using JobExtents = std::map<std::pair<std::size_t, int>, StartExtent>;

// Makes and fills job_about, job_runs, job_versions, job_ranks, job_revisions and job_problems. `version`:
// this program's.
[[nodiscard]] SqliteResult<void> write_job_tables(SqliteDatabase& database, const std::vector<JobRun>& runs,
                                                  const JobExtents& extents, const Problems& problems,
                                                  const std::string& version);

// Makes and fills job_gaps from the present rows.
[[nodiscard]] SqliteResult<void> write_job_gaps(SqliteDatabase& database);

}  // namespace gradmon
