// SPDX-License-Identifier: Apache-2.0
// The table v_metrics over the databases of all ranks: one row for each value. It opens each database when it
// reads it, so their number is unlimited.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tools/gradmonctl/query/rank_databases.h"
#include "writers/sqlite/virtual_table.h"

namespace gradmon {

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
