// SPDX-License-Identifier: Apache-2.0
// Texts (target names, shapes) as small numbers, so that a Record carries no
// text. Every member: any thread; each call takes a lock, so intern when hooks
// attach and when a shape is first seen, not for each record.
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
  // Id 0 is the empty text of stage 0: what a Record holds where nothing was set.
  NameTable();

  NameTable(const NameTable&) = delete;
  NameTable& operator=(const NameTable&) = delete;

  // The id of a text; the same text and stage give the same id for as long as
  // the table lives, and no id is ever given to another. `vpp_stage` is the
  // index of the model chunk that a target belongs to; shapes leave it at 0.
  std::uint32_t intern(std::string_view text, int vpp_stage = 0);

  // Valid, and at the same address, for as long as the table lives. An id that
  // was never given out reads as id 0.
  const std::string& name(std::uint32_t id) const;
  int vpp_stage(std::uint32_t id) const;

  std::size_t size() const;

 private:
  struct Entry {
    std::string text;
    int vpp_stage;
  };
  const Entry& entry(std::uint32_t id) const;

  mutable std::mutex mutex_;
  // Guarded by mutex_; entries never move and never change.
  std::deque<Entry> entries_;
  std::map<std::pair<int, std::string_view>, std::uint32_t> ids_;
};

}  // namespace gradmon
