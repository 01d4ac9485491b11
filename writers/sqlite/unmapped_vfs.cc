// SPDX-License-Identifier: Apache-2.0
#include "writers/sqlite/unmapped_vfs.h"

#include <sqlite3.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

namespace gradmon {
namespace {

enum class Direction { from_shared, to_shared };

// False: a part of `shared` is not mapped.
bool copy(void* own, volatile void* shared, std::size_t bytes, Direction direction) {
  const iovec local{own, bytes};
  const iovec remote{const_cast<void*>(shared), bytes};
  const auto call = direction == Direction::from_shared ? ::process_vm_readv : ::process_vm_writev;
  return call(::getpid(), &local, 1, &remote, 1, 0) == static_cast<ssize_t>(bytes);
}

bool copies_work() {
  std::uint32_t from = 1, to = 0;
  return copy(&to, &from, sizeof from, Direction::from_shared) && to == 1 &&
         copy(&from, &to, sizeof to, Direction::to_shared);
}

// The index of a write-ahead log: SQLite's private copy, and the common state at the last copying. One thread
// at a time.
class PrivateIndex {
 public:
  // The private memory of the region that is mapped at `shared`; null if it cannot be read.
  volatile void* region(std::size_t number, volatile void* shared, std::size_t bytes) {
    while (regions_.size() <= number) regions_.emplace_back();
    Region& region = regions_[number];
    if (region.own.empty()) {
      region.own.resize(bytes / sizeof(std::uint32_t));
      region.common.resize(region.own.size());
      region.shared = shared;
      if (!copy(region.own.data(), shared, bytes, Direction::from_shared)) lost_ = true;
      region.common = region.own;
    }
    return lost_ ? nullptr : region.own.data();
  }

  // Copies SQLite's changes to the other processes; the rest may be theirs. In ascending order: the header of
  // the index has two copies, and SQLite has a barrier between them.
  void push() {
    if (!is_mapped()) return;
    push(regions_[0], 0, kEndOfReaders);
    if (!writing_) return;  // Only the writer changes more.
    push(regions_[0], kEndOfReaders, regions_[0].own.size());
    for (std::size_t i = 1; i < regions_.size(); ++i) push(regions_[i], 0, regions_[i].own.size());
  }

  // Copies the changes of other processes. Call it after push().
  void pull() {
    if (!is_mapped() || lost_) return;
    Region& first = regions_[0];
    std::array<std::uint32_t, kEndOfReaders> fresh;
    if (!copy(fresh.data(), first.shared, sizeof fresh, Direction::from_shared)) {
      lost_ = true;
      return;
    }
    const bool same_log = std::memcmp(fresh.data(), first.common.data(), word_bytes(kFirstOfReaders)) == 0;
    if (!same_log && writing_) {  // No other process may write it.
      lost_ = true;
    } else if (same_log) {  // Then the rest of the index is the same, too.
      std::copy(fresh.begin(), fresh.end(), first.common.begin());
      std::copy(fresh.begin(), fresh.end(), first.own.begin());
    } else {
      for (Region& region : regions_) pull(region);
    }
  }

  // True while SQLite has the lock of the writer.
  void set_writing(bool writing) { writing_ = writing; }

  // The mapping is gone, or another process has written to it. From then on nothing is copied: SQLite's index
  // is right, and other processes find their index torn, and rebuild it.
  bool lost() const { return lost_; }

 private:
  static constexpr std::size_t kWordsOfBlock = 256;
  // Words of region 0, after the two headers, that checkpoints and readers write without the writer's lock.
  static constexpr std::size_t kFirstOfReaders = 24;
  static constexpr std::size_t kEndOfReaders = 34;

  struct Region {
    std::vector<std::uint32_t> own;     // SQLite's
    std::vector<std::uint32_t> common;  // after the last copy
    volatile void* shared = nullptr;
  };

  // Region 0 comes first, with the headers.
  bool is_mapped() const { return !regions_.empty() && !regions_[0].own.empty(); }

  static std::size_t word_bytes(std::size_t words) { return words * sizeof(std::uint32_t); }

  // The first word from `at` on that SQLite has changed; `end` if none has changed.
  static std::size_t next_change(const Region& region, std::size_t at, std::size_t end) {
    while (at < end) {
      const std::size_t block = std::min(kWordsOfBlock - at % kWordsOfBlock, end - at);
      if (std::memcmp(region.own.data() + at, region.common.data() + at, word_bytes(block)) != 0) {
        while (region.own[at] == region.common[at]) ++at;
        return at;
      }
      at += block;
    }
    return end;
  }

  void push(Region& region, std::size_t begin, std::size_t end) {
    end = std::min(end, region.own.size());
    while (!lost_ && (begin = next_change(region, begin, end)) < end) {
      std::size_t after = begin;
      while (after < end && region.own[after] != region.common[after]) ++after;
      auto* const shared = static_cast<volatile std::uint32_t*>(region.shared) + begin;
      const std::size_t bytes = word_bytes(after - begin);
      if (!copy(region.own.data() + begin, shared, bytes, Direction::to_shared)) lost_ = true;
      std::memcpy(region.common.data() + begin, region.own.data() + begin, bytes);
      begin = after;
    }
  }

  void pull(Region& region) {
    const std::size_t bytes = word_bytes(region.own.size());
    if (bytes == 0 || lost_) return;
    if (!copy(region.common.data(), region.shared, bytes, Direction::from_shared)) {
      lost_ = true;
    } else {
      std::memcpy(region.own.data(), region.common.data(), bytes);
    }
  }

  std::vector<Region> regions_;
  bool writing_ = false;
  bool lost_ = false;
};

// Replaces the methods of SQLite's own object of a file.
struct FileMethods {
  sqlite3_io_methods methods{};  // Keep first: the object points to it.
  const sqlite3_io_methods* original = nullptr;
  std::unique_ptr<PrivateIndex> index = nullptr;  // null: no write-ahead log is in use
  int failed_locks = 0;                           // in a row
  // The error of a failed unlock in shared memory: SQLite's file layer still counts the lock as held, and its
  // next attempt to take it would wait for 10 s. No more locks are taken then; closing the file releases it.
  int unlock_error = 0;
};

FileMethods& own_methods(sqlite3_file* file) {
  return *reinterpret_cast<FileMethods*>(const_cast<sqlite3_io_methods*>(file->pMethods));
}

// Linux answers EAGAIN if another process holds the lock; SQLite checks this process's locks itself. SQLite
// treats every failed lock in shared memory as held, and retries for 10 s; of other locks, ENOLCK.
bool may_pass(int error) {
  return error == 0 || error == EAGAIN || error == EINTR || error == EBUSY || error == ETIMEDOUT;
}

// Runs the call for a lock of that file. If it fails again and again, the result is `error`, and errno has
// the reason.
template <class Call>
int take_lock(FileMethods& file, int error, const Call& call) {
  constexpr int kMostFailures = 3;  // in a row; SQLite tries again after each, without a wait or after 1 ms
  errno = 0;
  const int code = call();
  const bool failed = code == SQLITE_BUSY && !may_pass(errno);
  file.failed_locks = failed ? file.failed_locks + 1 : 0;
  return file.failed_locks > kMostFailures ? error : code;
}

int map_shared(sqlite3_file* file, int region, int bytes, int extend, void volatile** mapped) {
  FileMethods& own = own_methods(file);
  const int code = take_lock(own, SQLITE_IOERR_SHMLOCK,
                             [&] { return own.original->xShmMap(file, region, bytes, extend, mapped); });
  if (*mapped == nullptr) return code;
  try {
    if (own.index == nullptr) own.index = std::make_unique<PrivateIndex>();
    *mapped = own.index->region(static_cast<std::size_t>(region), *mapped, static_cast<std::size_t>(bytes));
    return *mapped != nullptr ? code : SQLITE_IOERR_SHMMAP;
  } catch (const std::bad_alloc&) {
    *mapped = nullptr;
    return SQLITE_NOMEM;
  }
}

int lock_file(sqlite3_file* file, int level) {
  FileMethods& own = own_methods(file);
  return take_lock(own, SQLITE_IOERR_LOCK, [&] { return own.original->xLock(file, level); });
}

int lock_shared(sqlite3_file* file, int first, int count, int flags) {
  constexpr int kWriter = 0;  // the number of the writer's lock
  FileMethods& own = own_methods(file);
  const auto lock = [&] {
    return take_lock(own, SQLITE_IOERR_SHMLOCK,
                     [&] { return own.original->xShmLock(file, first, count, flags); });
  };
  if (own.index == nullptr) return lock();
  PrivateIndex& index = *own.index;
  index.push();  // before others get the lock
  const bool of_writer = first == kWriter && (flags & SQLITE_SHM_EXCLUSIVE) != 0;
  if ((flags & SQLITE_SHM_UNLOCK) != 0) {
    if (of_writer) index.set_writing(false);
    const int code = own.original->xShmLock(file, first, count, flags);
    if (code != SQLITE_OK) own.unlock_error = errno;
    return code;
  }
  if (own.unlock_error != 0) {
    errno = own.unlock_error;
    return SQLITE_IOERR_SHMLOCK;
  }
  if (index.lost()) return SQLITE_IOERR_SHMMAP;
  const int code = lock();
  if (code == SQLITE_IOERR_SHMLOCK) return code;
  index.pull();  // also if another process has the lock: SQLite then reads its changes
  if (code == SQLITE_OK && of_writer) index.set_writing(true);
  if (code != SQLITE_OK || !index.lost()) return code;
  own.original->xShmLock(file, first, count, (flags & ~SQLITE_SHM_LOCK) | SQLITE_SHM_UNLOCK);
  return SQLITE_IOERR_SHMMAP;
}

void order_shared(sqlite3_file* file) {
  const FileMethods& own = own_methods(file);
  if (own.index != nullptr) own.index->push();
  own.original->xShmBarrier(file);
  if (own.index != nullptr) own.index->pull();
}

int unmap_shared(sqlite3_file* file, int remove) {
  FileMethods& own = own_methods(file);
  if (own.index != nullptr) own.index->push();
  own.index.reset();
  return own.original->xShmUnmap(file, remove);
}

int close_file(sqlite3_file* file) {
  const std::unique_ptr<FileMethods> own(&own_methods(file));
  file->pMethods = own->original;
  return file->pMethods->xClose(file);
}

sqlite3_vfs* original_vfs(const sqlite3_vfs* vfs) { return static_cast<sqlite3_vfs*>(vfs->pAppData); }

int open_file(sqlite3_vfs* vfs, const char* name, sqlite3_file* file, int flags, int* flags_used) {
  sqlite3_vfs* const original = original_vfs(vfs);
  const int code = original->xOpen(original, name, file, flags, flags_used);
  const bool shares_index = code == SQLITE_OK && file->pMethods->iVersion >= 2 &&
                            file->pMethods->xShmMap != nullptr && (flags & SQLITE_OPEN_MAIN_DB) != 0;
  if (!shares_index) return code;
  auto* const own = new (std::nothrow) FileMethods;
  if (own == nullptr) {
    file->pMethods->xClose(file);
    file->pMethods = nullptr;
    return SQLITE_NOMEM;
  }
  own->original = file->pMethods;
  own->methods = *file->pMethods;
  own->methods.xClose = close_file;
  own->methods.xLock = lock_file;
  own->methods.xShmMap = map_shared;
  own->methods.xShmLock = lock_shared;
  own->methods.xShmBarrier = order_shared;
  own->methods.xShmUnmap = unmap_shared;
  file->pMethods = &own->methods;
  return SQLITE_OK;
}

sqlite3_vfs made_from(sqlite3_vfs* original) {
  sqlite3_vfs vfs = *original;
  vfs.pNext = nullptr;
  vfs.zName = "gradmon-unmapped";
  vfs.pAppData = original;
  vfs.xOpen = open_file;
  return vfs;
}

}  // namespace

const char* unmapped_vfs() {
  static const char* const name = []() -> const char* {
    sqlite3_vfs* const original = sqlite3_vfs_find("unix");
    if (original == nullptr || !copies_work()) return nullptr;
    static sqlite3_vfs vfs = made_from(original);
    return sqlite3_vfs_register(&vfs, 0) == SQLITE_OK ? vfs.zName : nullptr;
  }();
  return name;
}

}  // namespace gradmon
