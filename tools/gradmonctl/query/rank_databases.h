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

// The databases of a query. Opens each when it is first read, and skips unreadable ones.
class RankDatabases {
 public:
  static constexpr std::size_t kMostOpen = 64;

  explicit RankDatabases(std::vector<RankFile> files) : files_(std::move(files)) {}
  RankDatabases(const RankDatabases&) = delete;
  RankDatabases& operator=(const RankDatabases&) = delete;

  const std::vector<RankFile>& files() const { return files_; }
  // Null if the database cannot be read. The pointer keeps it open.
  std::shared_ptr<RankDatabase> open(std::size_t index);
  // Skips the rest of an open database.
  void fail(std::size_t index, std::string error);

  // The reasons for skipping databases: one error for each.
  std::vector<std::string> errors() const;

 private:
  const std::vector<RankFile> files_;
  std::vector<std::shared_ptr<RankDatabase>> open_ =
      std::vector<std::shared_ptr<RankDatabase>>(files_.size());
  std::vector<std::string> errors_ = std::vector<std::string>(files_.size());  // empty: none
  std::size_t opened_ = 0;
};

}  // namespace gradmon
