// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tools/gradmonctl/query/rank_database.h"
#include "tools/gradmonctl/query/rank_files.h"

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

}  // namespace gradmon
