// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tl/expected.hpp>

namespace gradmon {

// A key-value store that all ranks of a job reach even without a shared directory. A call is bounded in time
// but may take seconds: never call it on the training thread or the agent thread. After an error it is
// unknown whether the operation took effect.
class SharedStore {
 public:
  virtual ~SharedStore() = default;

  // Sets `key` to `value` (not empty) unless it has a value. Returns the resulting value.
  virtual tl::expected<std::string, std::string> put_once(const std::string& key,
                                                          const std::string& value) = 0;
  // Sets `key` to `value` (not empty), replacing an existing value.
  virtual tl::expected<void, std::string> put(const std::string& key, const std::string& value) = 0;
  // Adds `number` to the counter `key`, which starts at 0. Returns the sum.
  virtual tl::expected<std::int64_t, std::string> add(const std::string& key, std::int64_t number) = 0;
  // Returns nullopt if `key` has no value.
  virtual tl::expected<std::optional<std::string>, std::string> get(const std::string& key) = 0;
};

}  // namespace gradmon
