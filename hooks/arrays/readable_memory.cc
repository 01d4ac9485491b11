// SPDX-License-Identifier: Apache-2.0
#include "hooks/arrays/readable_memory.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

namespace gradmon {
namespace {

constexpr std::uintptr_t kPage = 4096;                                // at most the page size of the system
constexpr std::uintptr_t kEachPageWithin = std::uintptr_t{4} << 20U;  // bytes
constexpr std::uintptr_t kFurtherSteps = std::uintptr_t{2} << 20U;

// The kernel reads a signal mask at the address and then refuses the unknown `how`: only an address that
// cannot be read gives EFAULT. Nothing is changed.
bool can_read_at(std::uintptr_t address) noexcept {
  constexpr long no_such_how = -1;
  constexpr std::size_t mask_bytes = 8;
  const std::uintptr_t aligned = address & ~std::uintptr_t{mask_bytes - 1};
  return ::syscall(SYS_rt_sigprocmask, no_such_how, aligned, nullptr, mask_bytes) == 0 || errno != EFAULT;
}

// msync() of pages without changes only checks that all of them are mapped.
bool is_mapped(std::uintptr_t begin, std::uintptr_t end) noexcept {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const std::uintptr_t first = begin & ~(page - 1);
  return ::msync(reinterpret_cast<void*>(first), end - first, MS_ASYNC) == 0 || errno != ENOMEM;
}

}  // namespace

bool is_readable(MemoryRange range) noexcept {
  if (range.bytes == 0) return true;
  const auto begin = reinterpret_cast<std::uintptr_t>(range.begin);
  if (begin == 0 || range.bytes - 1 > UINTPTR_MAX - begin) return false;
  const std::uintptr_t last = begin + range.bytes - 1;
  if (!can_read_at(begin) || !can_read_at(last) || last == UINTPTR_MAX || !is_mapped(begin, last + 1))
    return false;
  std::uintptr_t step = kPage;
  for (std::uintptr_t at = begin; last - at > step; at += step) {
    if (!can_read_at(at + step)) return false;
    if (at - begin >= kEachPageWithin) step = kFurtherSteps;
  }
  return true;
}

}  // namespace gradmon
