// SPDX-License-Identifier: Apache-2.0
// Maps texts (target names, shapes) to small numbers, so that a Record contains no text. All
// members may be called on any thread. Each call takes a lock: intern when hooks attach and when a
// shape is first seen, not per record.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "control/vocabulary.h"

namespace gradmon {

class NameTable {
 public:
  // A bound on the texts of a table. A rank has kNamesOfARank: its program may make a new name in each step.
  struct Bound {
    std::size_t count;
    std::size_t bytes;
  };
  static constexpr Bound kNamesOfARank{std::size_t{1} << 19, std::size_t{64} << 20};
  static constexpr Bound kUnbounded{SIZE_MAX, SIZE_MAX};
  static constexpr std::size_t kMostShapes = std::size_t{1} << 18;
  static constexpr std::size_t kMostShapeBytes = std::size_t{64} << 20;

  // Id 0 is the empty text of stage 0, the default in a Record. The bound is on names; shapes have their own.
  explicit NameTable(const Bound& names = kUnbounded);

  NameTable(const NameTable&) = delete;
  NameTable& operator=(const NameTable&) = delete;

  // Returns the id of a text. The same text and stage always have the same id, and ids are never reused.
  // `vpp_stage` is the index of the model chunk of a target. Beyond the bound a new text gets id 0, its rows
  // are dropped, and the log says so once.
  std::uint32_t intern(std::string_view text, int vpp_stage = 0);
  // Same as intern(), for shapes. After kMostShapes different shapes, or kMostShapeBytes, new ones get id 0,
  // and the log says so once: shapes that never repeat must not fill the memory.
  std::uint32_t intern_shape(std::string_view shape);

  // The reference is valid for the lifetime of the table. An unknown id reads as id 0.
  const std::string& name(std::uint32_t id) const;
  int vpp_stage(std::uint32_t id) const;

  std::size_t size() const;

 private:
  struct Entry {
    std::string text;
    int vpp_stage;
  };
  struct Texts {
    Bound most;
    Bound now{};
    bool full = false;  // the log has reported it
  };
  const Entry& entry(std::uint32_t id) const;
  // Requires mutex_. `what` and `then`: for the log.
  std::uint32_t find_or_add(std::string_view text, int vpp_stage, Texts& texts, const char* what,
                            const char* then);

  mutable std::mutex mutex_;
  // Guarded by mutex_; entries never move and never change.
  std::deque<Entry> entries_;
  std::map<std::pair<int, std::string_view>, std::uint32_t> ids_;
  Texts names_;
  Texts shapes_{{kMostShapes, kMostShapeBytes}};
};

// "1:fc1.weight"; for stage 0 the name alone.
std::string with_stage(int vpp_stage, const std::string& name);

// The scopes of the rows of each target and kind (writers/FORMAT.md, "scopes.json"). All members may be
// called on any thread. version() takes no lock.
class ScopeTable {
 public:
  // `scope`: id of a JSON object with the key "scope", in the NameTable that has the target.
  void set(Kind kind, std::uint32_t target, std::uint32_t scope);
  // 0: unknown.
  std::uint32_t of(Kind kind, std::uint32_t target) const;
  // Grows with each change, from 1 on.
  std::uint32_t version() const noexcept { return version_.load(std::memory_order_acquire); }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::uint64_t, std::uint32_t> scopes_;  // guarded by mutex_; by kind and target
  std::atomic<std::uint32_t> version_{1};
};

}  // namespace gradmon
