// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/rank_rows.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "control/files/descriptor.h"

namespace gradmon {
namespace {

constexpr std::size_t kMostDescriptors = 64;
constexpr std::uint64_t kRowsBetweenCounts = 1024;

double seconds_of(const struct timespec& time) {
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

enum class BetweenReads { open, closed };

// Reads a regular file, and counts its bytes. Never waits for a FIFO.
class CountedRead {
 public:
  CountedRead(const std::filesystem::path& path, BetweenReads between, ConversionMeter& meter,
              Problems& problems)
      : path_(path),
        between_(between),
        meter_(meter),
        problems_(problems),
        file_(std::make_shared<Descriptor>(open())) {
    if (!file_->valid() || ::fstat(file_->get(), &status_) != 0) {
      problems_.add(path_, 0, std::string("cannot open: ") + std::strerror(errno));
      file_->reset();
    } else if (!S_ISREG(status_.st_mode)) {
      problems_.add(path_, 0, "not a regular file");
      file_->reset();
    }
  }

  bool valid() const { return file_->valid(); }
  double written() const { return seconds_of(status_.st_mtim); }

  std::size_t operator()(char* into, std::size_t room) {
    if (!file_->valid() && !reopen()) return 0;
    ssize_t got = ::pread(file_->get(), into, room, place_);
    while (got < 0 && errno == EINTR) got = ::pread(file_->get(), into, room, place_);
    if (got < 0) problems_.add(path_, 0, std::string("cannot read: ") + std::strerror(errno));
    if (got <= 0 || between_ == BetweenReads::closed) file_->reset();
    if (got <= 0) return 0;
    place_ += got;
    meter_.bytes += static_cast<std::uint64_t>(got);
    return static_cast<std::size_t>(got);
  }

 private:
  int open() const { return ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); }
  bool reopen() {
    *file_ = Descriptor(open());
    struct stat now {};
    const bool same = file_->valid() && ::fstat(file_->get(), &now) == 0 && now.st_dev == status_.st_dev &&
                      now.st_ino == status_.st_ino;
    if (!same) problems_.add(path_, 0, "was removed or replaced while it was read; the rest is left out");
    return same;
  }

  const std::filesystem::path path_;
  const BetweenReads between_;
  ConversionMeter& meter_;
  Problems& problems_;
  const std::shared_ptr<Descriptor> file_;  // std::function copies
  struct stat status_ {};
  off_t place_ = 0;  // of the next byte
};

}  // namespace

RankRows::~RankRows() { meter_.rows += uncounted_; }

void RankRows::open_next_file() {
  const InputFile& input = files_[next_file_++];
  const auto between = open_.size() < kMostDescriptors ? BetweenReads::open : BetweenReads::closed;
  CountedRead read(input.file.path, between, meter_, problems_);
  if (!read.valid()) return;
  Open opened;
  opened.start = input.start;
  opened.written = read.written();
  opened.file = std::make_unique<RowFile>(input.file.path, std::move(read), problems_);
  if (opened.file->next(opened.row)) open_.push_back(std::move(opened));
}

// Opens the files that may have a row before, or in the step of, the first row of the open files. Opens all
// of them: any file skipped here may be the last start's.
void RankRows::open_due_files() {
  const auto step = [](const Open& a, const Open& b) { return a.row.step < b.row.step; };
  while (next_file_ < files_.size()) {
    const auto least = std::min_element(open_.begin(), open_.end(), step);
    if (least != open_.end() && least->row.step < files_[next_file_].file.name.first_step) return;
    open_next_file();
  }
}

// Makes the file with the least step the current one: in the same step the file of the last start, then the
// file that was opened first.
void RankRows::choose() {
  current_ = 0;
  for (std::size_t i = 1; i < open_.size(); ++i) {
    const std::int64_t step = open_[i].row.step;
    const std::int64_t least = open_[current_].row.step;
    if (step < least || (step == least && open_[i].start > open_[current_].start)) current_ = i;
  }
}

// Returns false without a further row.
bool RankRows::advance() {
  if (meter_.stop.load(std::memory_order_relaxed)) return false;
  open_due_files();
  if (open_.empty()) return false;
  choose();
  return true;
}

void RankRows::problem(const Row& row, const std::string& text) {
  problems_.add(open_[current_].file->path(), row.line, text + "; the row is left out");
}

bool RankRows::is_wanted(const Row& row) {
  if (row.step != step_) {
    step_ = row.step;
    start_of_step_ = open_[current_].start;
  }
  if (open_[current_].start != start_of_step_) {
    ++meter_.repeated;
    return false;
  }
  if (row.mask == 0) return false;
  const auto id = names_.id_of(row.vpp_stage, row.name);
  const std::uint64_t key = std::uint64_t{id.value_or(0)} << 32 | static_cast<std::uint32_t>(row.micro_step);
  const auto last = id ? last_steps_.find(key) : last_steps_.end();
  const bool is_new = last == last_steps_.end();
  if (is_new && (!id || last_steps_.size() >= most_targets_)) {
    problem(row, "more than " + std::to_string(most_targets_) + " names and micro steps");
    return false;
  }
  target_ = *id;
  if (is_new) return last_steps_.emplace(key, row.step).second;
  if (std::exchange(last->second, row.step) != row.step) return true;
  problem(row, "found a second row of \"" + std::string(row.name.substr(0, 100)) + "\" in step " +
                   std::to_string(row.step) + "; expected one");
  return false;
}

const Row* RankRows::next() {
  bool used = step_ >= 0;  // the row of `current_` was returned
  for (;;) {
    if (used && !open_.empty() && !open_[current_].file->next(open_[current_].row))
      open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(current_));
    if (!advance()) {
      open_.clear();
      return nullptr;
    }
    used = true;
    if (is_wanted(open_[current_].row)) break;
  }
  if (++uncounted_ == kRowsBetweenCounts) meter_.rows += std::exchange(uncounted_, 0);
  return &open_[current_].row;
}

}  // namespace gradmon
