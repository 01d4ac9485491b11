// SPDX-License-Identifier: Apache-2.0
#include "tests/whole/availability/step_barrier.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
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

}  // namespace gradmon
