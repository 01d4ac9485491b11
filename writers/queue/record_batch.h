// SPDX-License-Identifier: Apache-2.0
// The records of a step, packed: a record takes the memory of its own values, so that a statistic costs
// nothing where nobody asks for it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <tuple>
#include <vector>

#include "writers/queue/record.h"

namespace gradmon {

// A sequence of records of one step and revision. Records are values: what an iterator gives is a copy. One
// thread at a time.
class RecordBatch {
 public:
  class Iterator;

  RecordBatch() = default;
  // Implicit: so that what takes a batch also takes a list of records. Step and revision of the first one
  // hold for all.
  RecordBatch(const std::vector<Record>& records) {
    for (const Record& record : records) push_back(record);
  }
  RecordBatch(std::initializer_list<Record> records) : RecordBatch(std::vector<Record>(records)) {}

  std::size_t size() const noexcept { return heads_.size(); }
  bool empty() const noexcept { return heads_.empty(); }
  Record operator[](std::size_t i) const noexcept { return unpacked(heads_[i]); }
  // Parts of a record, for those who need few.
  Kind kind(std::size_t i) const noexcept { return heads_[i].kind; }
  std::uint32_t target(std::size_t i) const noexcept { return heads_[i].target; }
  std::int32_t micro_step(std::size_t i) const noexcept { return heads_[i].micro_step; }
  std::int64_t read_at(std::size_t i) const noexcept { return heads_[i].read_at; }
  // Null: the record's mask lacks the value.
  const double* value(std::size_t i, std::size_t index) const noexcept {
    const Head& head = heads_[i];
    if ((head.mask >> index & 1U) == 0) return nullptr;
    const std::uint32_t before = kept(head.kind, head.mask) & ((std::uint32_t{1} << index) - 1);
    return values_.data() + head.first + __builtin_popcount(before);
  }
  Iterator begin() const noexcept;
  Iterator end() const noexcept;
  // Calls `on_kind(kind, begin, end)` for the records of each kind, until it returns false. They must be
  // sorted.
  template <class OnKind>
  void each_kind(const OnKind& on_kind) const;

  // Throws std::bad_alloc; the batch is then as before.
  void push_back(const Record& record);
  // Keeps the memory.
  void clear() noexcept {
    heads_.clear();
    values_.clear();
  }
  // Room for as many records and values as the other batch has.
  void reserve_as(const RecordBatch& other) {
    heads_.reserve(other.heads_.size());
    values_.reserve(other.values_.size());
  }
  std::size_t room() const noexcept { return heads_.capacity(); }  // in records

  // By kind, then sequence; equal ones stay in their order.
  void sort();
  // Passes the records for which `wanted(kind, mask)` to `change`, which may change their values and mask.
  // Removes those for which it returns false.
  template <class Wanted, class Change>
  void change(const Wanted& wanted, const Change& change);

 private:
  struct Head : RecordHead {
    std::uint32_t first = 0;  // index of its first value; they are in the order of their bits
  };

  // The values that are kept. The flight recorder has all statistics of a reduced gradient, whatever its row
  // has; a late record has its number in values[0].
  static std::uint32_t kept(Kind kind, ValueMask mask) noexcept {
    const std::uint32_t whole = kind == Kind::grad_reduced ? (std::uint32_t{1} << kOps) - 1 : 0;
    return (mask & ~std::uint32_t{kLate}) | whole | ((mask & kLate) != 0 ? 1U : 0);
  }
  Record unpacked(const Head& head) const noexcept;
  // Adds the values behind all others; returns the index of the first one.
  std::uint32_t add_values(const Record& record);
  void write_values(const Record& record, std::uint32_t first) noexcept;

  std::vector<Head> heads_;
  std::vector<double> values_;
  std::int64_t step_ = 0;
  std::uint64_t revision_ = 0;
};

class RecordBatch::Iterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = Record;
  using difference_type = std::ptrdiff_t;
  using reference = Record;
  struct pointer {
    Record record;
    const Record* operator->() const noexcept { return &record; }
  };

  Iterator(const RecordBatch& batch, std::size_t place) : batch_(&batch), place_(place) {}

  Record operator*() const noexcept { return (*batch_)[place_]; }
  pointer operator->() const noexcept { return {**this}; }
  Iterator& operator++() noexcept {
    ++place_;
    return *this;
  }
  Iterator& operator+=(std::size_t count) noexcept {
    place_ += count;
    return *this;
  }
  Iterator operator+(std::size_t count) const noexcept { return {*batch_, place_ + count}; }
  std::ptrdiff_t operator-(const Iterator& other) const noexcept {
    return static_cast<std::ptrdiff_t>(place_) - static_cast<std::ptrdiff_t>(other.place_);
  }
  bool operator==(const Iterator& other) const noexcept { return place_ == other.place_; }
  bool operator!=(const Iterator& other) const noexcept { return place_ != other.place_; }

 private:
  const RecordBatch* batch_;
  std::size_t place_;
};

inline RecordBatch::Iterator RecordBatch::begin() const noexcept { return {*this, 0}; }
inline RecordBatch::Iterator RecordBatch::end() const noexcept { return {*this, size()}; }

template <class OnKind>
void RecordBatch::each_kind(const OnKind& on_kind) const {
  for (std::size_t begin = 0, next = 0; begin != size(); begin = next) {
    while (next != size() && kind(next) == kind(begin)) ++next;
    if (!on_kind(kind(begin), Iterator(*this, begin), Iterator(*this, next))) return;
  }
}

inline std::uint32_t RecordBatch::add_values(const Record& record) {
  const auto first = static_cast<std::uint32_t>(values_.size());
  const std::uint32_t bits = kept(record.kind, record.mask);
  values_.resize(values_.size() + static_cast<std::size_t>(__builtin_popcount(bits)));
  write_values(record, first);
  return first;
}

inline void RecordBatch::write_values(const Record& record, std::uint32_t first) noexcept {
  double* at = values_.data() + first;
  for (std::uint32_t bits = kept(record.kind, record.mask); bits != 0; bits &= bits - 1)
    *at++ = record.values[static_cast<std::size_t>(__builtin_ctz(bits))];
}

inline void RecordBatch::push_back(const Record& record) {
  if (empty()) {
    step_ = record.step;
    revision_ = record.revision;
  }
  const std::uint32_t first = add_values(record);
  try {
    heads_.push_back({record, first});
  } catch (...) {
    values_.resize(first);
    throw;
  }
}

inline Record RecordBatch::unpacked(const Head& head) const noexcept {
  Record record;
  static_cast<RecordHead&>(record) = head;
  record.step = step_;
  record.revision = revision_;
  const double* at = values_.data() + head.first;
  for (std::uint32_t bits = kept(head.kind, head.mask); bits != 0; bits &= bits - 1)
    record.values[static_cast<std::size_t>(__builtin_ctz(bits))] = *at++;
  return record;
}

inline void RecordBatch::sort() {
  const auto comes_first = [](const Head& a, const Head& b) {
    return std::tie(a.kind, a.sequence) < std::tie(b.kind, b.sequence);
  };
  if (!std::is_sorted(heads_.begin(), heads_.end(), comes_first))
    std::stable_sort(heads_.begin(), heads_.end(), comes_first);
}

template <class Wanted, class Change>
void RecordBatch::change(const Wanted& wanted, const Change& change) {
  const auto goes = [&](Head& head) {
    if (!wanted(head.kind, head.mask)) return false;
    Record record = unpacked(head);
    if (!change(record)) return true;
    const int room = __builtin_popcount(kept(head.kind, head.mask));
    head.mask = record.mask;
    if (__builtin_popcount(kept(head.kind, head.mask)) > room) {
      head.first = add_values(record);
    } else {
      write_values(record, head.first);
    }
    return false;
  };
  heads_.erase(std::remove_if(heads_.begin(), heads_.end(), goes), heads_.end());
}

// Completes all records, and removes those without values. Does nothing if `late` is null.
inline void complete_records(RecordBatch& records, LateValues* late) {
  if (late == nullptr) return;
  records.change([](Kind, ValueMask mask) { return (mask & kLate) != 0; },
                 [late](Record& record) { return late->complete(record); });
}

}  // namespace gradmon
