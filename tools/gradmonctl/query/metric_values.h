// SPDX-License-Identifier: Apache-2.0
// The table v_metrics over the databases of all ranks: one row for each value. It opens the databases as it
// reads them, so there may be any number of them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tools/gradmonctl/query/rank_database.h"
#include "tools/gradmonctl/query/rank_files.h"
#include "writers/sqlite/virtual_table.h"

namespace gradmon {

// The databases of a query; opens each when it is first read. Those that cannot be read are left out.
class RankDatabases {
 public:
  static constexpr std::size_t kMostOpen = 64;

  explicit RankDatabases(std::vector<RankFile> files) : files_(std::move(files)) {}
  RankDatabases(const RankDatabases&) = delete;
  RankDatabases& operator=(const RankDatabases&) = delete;

  const std::vector<RankFile>& files() const { return files_; }
  // Null if it cannot be read. A pointer keeps the database open.
  std::shared_ptr<RankDatabase> open(std::size_t index);
  // Leaves out the rest of a database that was open.
  void fail(std::size_t index, std::string error);

  // Why databases were left out, each once.
  std::vector<std::string> errors() const;

 private:
  const std::vector<RankFile> files_;
  std::vector<std::shared_ptr<RankDatabase>> open_ =
      std::vector<std::shared_ptr<RankDatabase>>(files_.size());
  std::vector<std::string> errors_ = std::vector<std::string>(files_.size());  // empty: none
  std::size_t opened_ = 0;
};

class MetricValues : public VirtualTable {
 public:
  explicit MetricValues(std::shared_ptr<RankDatabases> databases) : databases_(std::move(databases)) {}

  std::string columns() const override;
  bool uses(const ColumnConstraint& constraint) const override;
  std::unique_ptr<RowCursor> scan(const std::vector<BoundConstraint>& constraints) override;

 private:
  const std::shared_ptr<RankDatabases> databases_;
};

}  // namespace gradmon
