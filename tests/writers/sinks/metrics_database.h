// SPDX-License-Identifier: Apache-2.0
// A monitor_metrics.db as another process reads it.
#pragma once

#include "writers/queue/record.h"
#include "writers/queue/sink.h"
#include "writers/sinks/sqlite_sink.h"
#include "writers/sqlite/sqlite_database.h"

namespace gradmon {

using TextRows = std::vector<std::string>;

// The rows of a query, their values joined by "|"; an empty text stands for NULL. A query that fails gives
// one row, "error: …".
TextRows query_rows(const std::filesystem::path& database, const std::string& query);
// The first value of the first row; -1 if there is none.
std::int64_t query_integer(const std::filesystem::path& database, const std::string& query);

// "" if the database passes its own check.
std::string integrity_error(const std::filesystem::path& database);

// The number of rows in all partitions of a database; 0 if it does not exist or has no tables yet.
std::uint64_t stored_rows(const std::filesystem::path& database);
// The same over the database of a directory and those moved aside.
std::uint64_t stored_rows_in(const std::filesystem::path& directory);

// A layout with these ops.
Layout layout_with(std::vector<Op> ops, std::uint64_t revision = 1);
// A record of grad_reduced with a norm.
Record norm_record(std::int64_t step, std::uint32_t target, double norm);
// One record for each of the targets "layers.{i}.weight", i from 0 to count − 1. Norms are step * 1000 + i.
std::vector<Record> norm_records(NameTable& names, std::int64_t step, std::uint32_t count);

// A sink of rank 3 that writes into a directory, made if missing.
MetricsFile::Options file_options(const std::filesystem::path& directory);

}  // namespace gradmon
