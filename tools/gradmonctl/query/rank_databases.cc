// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/query/rank_databases.h"

#include <algorithm>
#include <iterator>

namespace gradmon {

std::shared_ptr<RankDatabase> RankDatabases::open(std::size_t index) {
  if (!errors_[index].empty()) return nullptr;
  if (open_[index]) return open_[index];
  if (opened_ >= kMostOpen) {
    for (auto& database : open_) database.reset();
    opened_ = 0;
  }
  auto made = RankDatabase::open(files_[index].path);
  if (!made) {
    fail(index, made.error());
    return nullptr;
  }
  open_[index] = std::make_shared<RankDatabase>(std::move(*made));
  ++opened_;
  return open_[index];
}

void RankDatabases::fail(std::size_t index, std::string error) {
  errors_[index] = std::move(error);
  open_[index].reset();
}

std::vector<std::string> RankDatabases::errors() const {
  std::vector<std::string> all;
  std::copy_if(errors_.begin(), errors_.end(), std::back_inserter(all),
               [](const std::string& error) { return !error.empty(); });
  return all;
}

}  // namespace gradmon
