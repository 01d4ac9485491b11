// SPDX-License-Identifier: Apache-2.0
#include "tests/whole/availability/step_files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace gradmon {
namespace {

// Short compared with a step.
void pause_briefly() {
  const timespec pause{0, 300'000};
  nanosleep(&pause, nullptr);
}

}  // namespace

StepBarrier::StepBarrier(const std::filesystem::path& file, Open open, int ranks) {
  const int fd =
      ::open(file.c_str(), O_RDWR | O_CLOEXEC | (open == Open::create ? O_CREAT | O_TRUNC : 0), 0666);
  if (fd < 0) throw std::runtime_error("cannot open " + file.string());
  if (open == Open::create && (fchmod(fd, 0666) != 0 || ftruncate(fd, sizeof(Shared)) != 0))
    throw std::runtime_error("cannot make " + file.string());
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (memory == MAP_FAILED) throw std::runtime_error("cannot map " + file.string());
  shared_ = static_cast<Shared*>(memory);
  if (open == Open::existing) return;
  shared_->last = INT64_MAX;
  for (int rank = 0; rank < kMostRanks; ++rank) {
    shared_->slots[rank].step = -1;
    shared_->slots[rank].present = rank < ranks;
  }
}

StepBarrier::~StepBarrier() { munmap(shared_, sizeof(Shared)); }

void StepBarrier::join(int rank, std::int64_t first) {
  shared_->slots[rank].step = first - 1;
  shared_->slots[rank].present = true;
}

void StepBarrier::wait(int rank, std::int64_t step) {
  shared_->slots[rank].step = step;
  const auto waits_for = [&](const RankSlot& slot) { return slot.present && slot.step < step; };
  while (std::any_of(std::begin(shared_->slots), std::end(shared_->slots), waits_for)) pause_briefly();
}

void StepBarrier::leave(int rank) { shared_->slots[rank].present = false; }

std::int64_t StepBarrier::newest_step() const {
  std::int64_t most = -1;
  for (const RankSlot& slot : shared_->slots) most = std::max<std::int64_t>(most, slot.step);
  return most;
}

StepLog::StepLog(const std::filesystem::path& path)
    : file_(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)),
      scheduling_(open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)) {
  if (file_ < 0) throw std::runtime_error("cannot write " + path.string());
}

StepLog::~StepLog() {
  close(file_);
  if (scheduling_ >= 0) close(scheduling_);
}

std::int64_t StepLog::run_delay() const {
  std::array<char, 96> text{};
  if (pread(scheduling_, text.data(), text.size() - 1, 0) <= 0) return 0;
  char* second = nullptr;
  std::strtoll(text.data(), &second, 10);
  return std::strtoll(second, nullptr, 10) / 1000;
}

void StepLog::before_step() {
  delay_before_ = run_delay();
  called_ = monotonic_us();
}

void StepLog::after_step(StepLine line) {
  line.called_at = called_;
  line.returned_at = monotonic_us();
  line.run_delay = run_delay() - delay_before_;
  std::ostringstream text;
  text << line.step << ' ' << line.called_at << ' ' << line.returned_at << ' ' << line.run_delay << ' '
       << line.collected << ' ' << line.revision << ' ' << line.applied_step << '\n';
  write(text.str());
}

void StepLog::start(std::int64_t step) { write("start " + std::to_string(step) + '\n'); }

void StepLog::parameters(std::int64_t step, const std::string& hash) {
  write("parameters " + std::to_string(step) + ' ' + hash + '\n');
}

void StepLog::end(const TrainingEnd& end) {
  write("end " + end.parameters + ' ' + end.rand_and_umask + '\n');
}

void StepLog::write(const std::string& text) {
  if (::write(file_, text.data(), text.size()) != static_cast<ssize_t>(text.size())) std::abort();
}

std::int64_t monotonic_us() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

StepLogContent read_step_log(const std::filesystem::path& path) {
  StepLogContent content;
  std::ifstream in(path);
  for (std::string text; std::getline(in, text);) {
    std::istringstream words(text);
    std::string first;
    words >> first;
    std::int64_t step = 0;
    if (first == "end") {
      TrainingEnd end;
      words >> end.parameters >> std::ws;
      std::getline(words, end.rand_and_umask);
      content.end = end;
    } else if (first == "start") {
      words >> content.start;
    } else if (first == "parameters") {
      words >> step >> content.parameters[step];
    } else {
      StepLine line;
      line.step = std::stoll(first);
      if (words >> line.called_at >> line.returned_at >> line.run_delay >> line.collected >> line.revision >>
          line.applied_step)
        content.lines.push_back(line);
    }
  }
  return content;
}

}  // namespace gradmon
