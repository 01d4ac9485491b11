// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/rows/kind_rows.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace gradmon {
namespace {

constexpr std::size_t kMostOpen = 64;

}  // namespace

void KindRows::advance_current() {
  if (!returned_) return;
  returned_ = false;
  if (!open_[current_].file->next(open_[current_].row))
    open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(current_));
}

// Opens the files that may have a row before the first row of the open files.
void KindRows::open_due_files() {
  const auto step = [](const Open& a, const Open& b) { return a.row.step < b.row.step; };
  while (next_file_ < files_.size() && open_.size() < kMostOpen) {
    const auto least = std::min_element(open_.begin(), open_.end(), step);
    if (least != open_.end() && least->row.step < files_[next_file_].name.first_step) return;
    Open opened{std::make_unique<RowFile>(files_[next_file_++].path, problems_), {}};
    if (opened.file->next(opened.row)) open_.push_back(std::move(opened));
  }
}

const Row* KindRows::next() {
  advance_current();
  open_due_files();
  if (open_.empty()) return nullptr;
  current_ = 0;
  for (std::size_t i = 1; i < open_.size(); ++i) {
    if (open_[i].row.step < open_[current_].row.step) current_ = i;
  }
  returned_ = true;
  return &open_[current_].row;
}

std::vector<KindFile> files_of_steps(const std::vector<KindFile>& files, std::int64_t first,
                                     std::int64_t last) {
  std::vector<KindFile> chosen;
  std::copy_if(files.begin(), files.end(), std::back_inserter(chosen), [&](const KindFile& file) {
    return file.name.first_step <= last && file.name.last_step >= first;
  });
  return chosen;
}

}  // namespace gradmon
