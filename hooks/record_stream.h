// SPDX-License-Identifier: Apache-2.0
// Where hooks hand over what they measured: the narrow side of the queue and
// its table of names.
#pragma once

#include <cstdint>
#include <string_view>

#include "writers/record.h"

namespace gradmon {

// Implemented by runtime/ over NameTable and RecordQueue. Outlives the hooks.
class RecordStream {
 public:
  virtual ~RecordStream() = default;

  // Training thread, when hooks attach. The same name gets the same id.
  virtual std::uint32_t target_id(int vpp_stage, std::string_view name) = 0;
  // Training thread, once per parameter and shape. `shape` as in "[16, 8]".
  virtual std::uint32_t shape_id(std::string_view shape) = 0;
  // Training thread. False where the record was dropped (the queue counts it).
  virtual bool push(const Record& record) noexcept = 0;
};

}  // namespace gradmon
