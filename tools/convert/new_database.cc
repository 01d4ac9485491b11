// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/new_database.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "control/files/descriptor.h"
#include "writers/sinks/metrics_schema.h"

namespace gradmon {
namespace {

// The journal holds only pages that existed when the transaction began: almost none.
constexpr const char* kSettings =
    "PRAGMA page_size = 8192; PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF; "
    "PRAGMA locking_mode = EXCLUSIVE; PRAGMA cache_size = -32768; PRAGMA temp_store = MEMORY;";

tl::unexpected<std::string> failure(const std::filesystem::path& path) {
  return tl::unexpected(path.string() + ": " + std::system_category().message(errno));
}

}  // namespace

tl::expected<NewDatabase, std::string> NewDatabase::make(const std::filesystem::path& path,
                                                         std::int64_t partition_steps) {
  Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0640));
  if (!file.valid() || !file.close()) return failure(path);
  auto database = SqliteDatabase::open(path, SqliteDatabase::Access::read_write);
  if (!database) return tl::unexpected(path.string() + ": " + database.error().text);
  NewDatabase made(path, std::move(*database));
  const auto prepared =
      made.database_.run(kSettings + create_metrics_schema(partition_steps) + "BEGIN IMMEDIATE;");
  if (!prepared) return tl::unexpected(made.describe(prepared.error()));
  return made;
}

tl::expected<void, std::string> NewDatabase::finish() {
  if (const auto committed = database_.run("COMMIT"); !committed)
    return tl::unexpected(describe(committed.error()));
  database_ = {};
  Descriptor file(::open(path_.c_str(), O_RDWR | O_CLOEXEC));
  if (!file.valid() || ::fsync(file.get()) != 0 || !file.close()) return failure(path_);
  return {};
}

}  // namespace gradmon
