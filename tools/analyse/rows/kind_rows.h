// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tools/analyse/rows/row_file.h"
#include "tools/analyse/rows/runs.h"

namespace gradmon {

// The rows of one kind and rank, from all its files, with ascending steps if they ascend in each file. At
// most 64 files are open at a time. One thread.
class KindRows {
 public:
  // `files`: ascending, as from kind_files_in(). Both must outlive this object.
  KindRows(const std::vector<KindFile>& files, Problems& problems) : files_(files), problems_(problems) {}

  // Null at the end. Valid until the next call.
  const Row* next();
  // The file of the last row.
  const std::filesystem::path& path() const { return open_[current_].file->path(); }

 private:
  struct Open {
    std::unique_ptr<RowFile> file;
    Row row;  // not yet returned, except that of `current_`
  };

  void advance_current();
  void open_due_files();

  const std::vector<KindFile>& files_;
  Problems& problems_;
  std::size_t next_file_ = 0;  // the first that was not opened yet
  std::vector<Open> open_;
  std::size_t current_ = 0;
  bool returned_ = false;  // `current_` is the file of the last row
};

// The files that may have rows of steps from `first` to `last`.
std::vector<KindFile> files_of_steps(const std::vector<KindFile>& files, std::int64_t first,
                                     std::int64_t last);

}  // namespace gradmon
