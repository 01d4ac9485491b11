// SPDX-License-Identifier: Apache-2.0
// Text that grows by rows, without a check of the room for each number.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string_view>
#include <utility>

namespace gradmon {

class RowText {
 public:
  void clear() { end_ = memory_.get(); }
  std::string_view text() const { return {memory_.get(), size()}; }
  bool empty() const { return size() == 0; }

  // The end of the text, with room for `bytes` more. Valid until the next call.
  char* room(std::size_t bytes) {
    if (bytes > capacity_ - size()) grow(bytes);
    return end_;
  }
  // Adds the bytes written up to `end`, within the room, to the text.
  void extend_to(char* end) { end_ = end; }

 private:
  std::size_t size() const { return static_cast<std::size_t>(end_ - memory_.get()); }
  void grow(std::size_t bytes) {
    const std::size_t used = size();
    const std::size_t capacity = std::max(2 * capacity_, used + bytes);
    std::unique_ptr<char[]> larger(new char[capacity]);
    std::copy(memory_.get(), end_, larger.get());
    memory_ = std::move(larger);
    capacity_ = capacity;
    end_ = memory_.get() + used;
  }

  std::unique_ptr<char[]> memory_;
  std::size_t capacity_ = 0;
  char* end_ = nullptr;
};

}  // namespace gradmon
