// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

namespace gradmon {

// The members of a JSON object in the order of the text, as nlohmann::ordered_map has them. The parser adds
// each in constant time, where ordered_map compares its key with all earlier ones. For parsing and reading:
// nothing else of this library uses the index, and no member may be erased.
template <class Key, class Value, class Less = std::less<Key>,
          class Allocator = std::allocator<std::pair<const Key, Value>>>
class IndexedObject : public nlohmann::ordered_map<Key, Value, Less, Allocator> {
  using OrderedMap = nlohmann::ordered_map<Key, Value, Less, Allocator>;

 public:
  using OrderedMap::OrderedMap;
  IndexedObject() = default;
  IndexedObject(const IndexedObject& other) : OrderedMap(other) {}
  IndexedObject(IndexedObject&&) = default;
  IndexedObject& operator=(const IndexedObject&) = delete;
  IndexedObject& operator=(IndexedObject&&) = delete;
  ~IndexedObject() = default;

  // The value of a key, which is added last if it is new.
  Value& operator[](const Key& key) {
    if (this->size() < kFewKeys) return OrderedMap::operator[](key);
    if (!places_) places_ = std::make_unique<std::unordered_map<Key, std::size_t>>();
    for (std::size_t place = places_->size(); place < this->size(); ++place)
      places_->emplace(this->data()[place].first, place);
    const auto [known, is_new] = places_->try_emplace(key, this->size());
    if (is_new) OrderedMap::Container::emplace_back(key, Value{});
    return this->data()[known->second].second;
  }

 private:
  static constexpr std::size_t kFewKeys = 16;  // need no index

  std::unique_ptr<std::unordered_map<Key, std::size_t>> places_;  // of all keys; null: not needed yet
};

}  // namespace gradmon
