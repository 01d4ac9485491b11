// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tl/expected.hpp>

namespace gradmon {

// Keys and values that all ranks of a job reach where they have no directory
// in common. Calls are bounded in time, but may take seconds: never on the training
// thread or the agent's. An error means: not known whether it was done.
class SharedStore {
 public:
  virtual ~SharedStore() = default;

  // Puts `value` (not empty) under `key` unless that has one; returns the one that holds.
  virtual tl::expected<std::string, std::string> put_once(const std::string& key,
                                                          const std::string& value) = 0;
  // Puts `value` (not empty) there, whatever there was.
  virtual tl::expected<void, std::string> put(const std::string& key, const std::string& value) = 0;
  // Adds to the number under `key`, 0 before the first time; returns the sum.
  virtual tl::expected<std::int64_t, std::string> add(const std::string& key, std::int64_t number) = 0;
  // What is there, if anything is.
  virtual tl::expected<std::optional<std::string>, std::string> get(const std::string& key) = 0;
};

}  // namespace gradmon
