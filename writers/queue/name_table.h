// SPDX-License-Identifier: Apache-2.0
// Maps texts (target names, shapes) to small numbers, so that a Record contains no text. All
// members may be called on any thread. Each call takes a lock: intern when hooks attach and when a
// shape is first seen, not per record.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

namespace gradmon {

class NameTable {
 public:
  static constexpr std::size_t kMostShapes = std::size_t{1} << 18;
  static constexpr std::size_t kMostShapeBytes = std::size_t{64} << 20;

  // Id 0 is the empty text of stage 0, the default in a Record.
  NameTable();

  NameTable(const NameTable&) = delete;
  NameTable& operator=(const NameTable&) = delete;

  // Returns the id of a text. The same text and stage always have the same id, and ids are never
  // reused. `vpp_stage` is the index of the model chunk of a target.
  std::uint32_t intern(std::string_view text, int vpp_stage = 0);
  // As intern(). Of more than kMostShapes different shapes, or kMostShapeBytes of them, the rest get id 0,
  // and the log says so once: where shapes never repeat, they must not fill the memory.
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
  const Entry& entry(std::uint32_t id) const;
  std::uint32_t add(std::string_view text, int vpp_stage);  // Requires mutex_.

  mutable std::mutex mutex_;
  // Guarded by mutex_; entries never move and never change.
  std::deque<Entry> entries_;
  std::map<std::pair<int, std::string_view>, std::uint32_t> ids_;
  std::size_t shapes_ = 0;
  std::size_t shape_bytes_ = 0;
  bool told_of_shapes_ = false;
};

// "1:fc1.weight"; for stage 0 the name alone.
std::string with_stage(int vpp_stage, const std::string& name);

}  // namespace gradmon
