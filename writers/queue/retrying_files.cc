// SPDX-License-Identifier: Apache-2.0
#include "writers/queue/retrying_files.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "control/log.h"

namespace gradmon {

void RetryingFiles::write(FileToWrite file, Time now) {
  if (try_write(file)) return;
  if (failed_.empty()) {
    log_error(error_ + "; will retry");
    pause_ = pauses_.first;
    retry_at_ = now + pause_;
  }
  if (failed_.size() == kMostKept) {
    log_error("more than " + std::to_string(kMostKept) + " unwritable files: dropped the oldest");
    failed_.erase(failed_.begin());
  }
  failed_.push_back(std::move(file));
}

void RetryingFiles::retry(Time now) {
  if (failed_.empty() || now < retry_at_) return;
  pause_ = std::min(pause_ * 2, pauses_.longest);
  retry_at_ = now + pause_;
  try_all();
}

void RetryingFiles::try_all() {
  if (failed_.empty()) return;
  failed_.erase(
      std::remove_if(failed_.begin(), failed_.end(), [this](const auto& f) { return try_again(f); }),
      failed_.end());
  if (!failed_.empty()) return;
  log_warn("all pending files are written");
  error_.clear();
}

bool RetryingFiles::try_again(const FileToWrite& file) {
  return (!should_continue_ || should_continue_()) && try_write(file);
}

bool RetryingFiles::try_write(const FileToWrite& file) {
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
