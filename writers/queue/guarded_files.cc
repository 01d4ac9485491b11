// SPDX-License-Identifier: Apache-2.0
#include "writers/queue/guarded_files.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "control/log.h"

namespace gradmon {

void GuardedFiles::write(FileToWrite file, Time now) {
  if (try_write(file)) return;
  if (failed_.empty()) {
    log_error(error_ + "; it is tried again");
    pause_ = pauses_.first;
    retry_at_ = now + pause_;
  }
  if (failed_.size() == kMostKept) {
    log_error("the oldest of " + std::to_string(kMostKept) + " files that cannot be written was given up");
    failed_.erase(failed_.begin());
  }
  failed_.push_back(std::move(file));
}

void GuardedFiles::retry(Time now) {
  if (failed_.empty() || now < retry_at_) return;
  pause_ = std::min(pause_ * 2, pauses_.longest);
  retry_at_ = now + pause_;
  try_all();
}

void GuardedFiles::try_all() {
  if (failed_.empty()) return;
  failed_.erase(
      std::remove_if(failed_.begin(), failed_.end(), [this](const auto& f) { return try_again(f); }),
      failed_.end());
  if (!failed_.empty()) return;
  log_warn("all files can be written again");
  error_.clear();
}

bool GuardedFiles::try_again(const FileToWrite& file) { return (!goes_on_ || goes_on_()) && try_write(file); }

bool GuardedFiles::try_write(const FileToWrite& file) {
  try {
    const auto written = file.write();
    if (written) return true;
    error_ = written.error();
  } catch (const std::exception& error) {
    error_ = std::string("a file is not written: ") + error.what();
  }
  return false;
}

}  // namespace gradmon
