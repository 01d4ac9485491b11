// SPDX-License-Identifier: Apache-2.0
// The hooks' interface to the record queue and its table of names.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "hooks/rows/watched_model.h"
#include "writers/queue/record.h"

namespace gradmon {

// Implemented by runtime/ over NameTable and RecordQueue. Outlives the hooks.
class RecordStream {
 public:
  virtual ~RecordStream() = default;

  // Training thread, when hooks attach. The same name gets the same id.
  virtual std::uint32_t target_id(int vpp_stage, std::string_view name) = 0;
  // Training thread. The target for rows of the target's scale, NAME.scale; 0: the stream takes none.
  virtual std::uint32_t scale_target_id(std::uint32_t /* target */) { return 0; }
  // Training thread, once per parameter and shape. `shape` as in "[16, 8]".
  virtual std::uint32_t shape_id(std::string_view shape) = 0;
  // Training thread. False: the row was dropped (the queue counts it).
  virtual bool push(const Record& record) noexcept = 0;
  virtual bool push(const Histogram& histogram) noexcept = 0;
  // Training thread, at most once a step, before the first record whose values come later (kLate). False:
  // this stream takes complete records only.
  virtual bool take_late(const std::shared_ptr<LateValues>&) noexcept { return false; }
  // Training thread, before the row is pushed: the scope of the values of this kind and target. Not called if
  // the row's parameter has the scope (WatchedParameter::placement).
  virtual void note_scope(Kind, std::uint32_t /* target */, const ScopeText&) noexcept {}
  // Training thread. A tensor of this kind could not be read in the step: its row is missing.
  virtual void note_missing_row(Kind) noexcept {}
  // Training thread. The reason why this target has no row in the step.
  virtual void note_reason(Kind, std::uint32_t /* target */, std::string_view /* why */) noexcept {}
  // Training thread. A sentence for status(), shown once: values without rows, and the reason.
  virtual void note_absence(const std::string& /* sentence */) {}
  // Training thread. Passes a text that becomes a separate output file; it replaces the earlier text.
  enum class Document : std::uint8_t { module_struct, stack_info };
  virtual void publish(Document document, std::string text) noexcept = 0;
};

}  // namespace gradmon
