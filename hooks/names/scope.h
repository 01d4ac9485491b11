// SPDX-License-Identifier: Apache-2.0
// What a value is of: all of a tensor, a part of it, a summand.
#pragma once

#include <memory>
#include <string>

namespace gradmon {

// A JSON object with the key "scope" (whole, replica, shard, piece, partial, local) and what tells where the
// value belongs, as scopes.json has it (writers/FORMAT.md). Null: nothing is known. Shared, because
// thousands of rows have the same.
using ScopeText = std::shared_ptr<const std::string>;

inline ScopeText make_scope(std::string json) { return std::make_shared<const std::string>(std::move(json)); }

}  // namespace gradmon
