// SPDX-License-Identifier: Apache-2.0
// Any bytes decode to an entry of the decision log or to an error. An entry does not change when it is
// encoded and decoded again.
#include <cstddef>
#include <cstdint>

#include "control/wire/messages.h"
#include "tests/fuzz/promise.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using gradmon::fuzz::promise;
  const auto entry = gradmon::decode_log_entry({reinterpret_cast<const char*>(data), size});
  if (!entry) {
    promise(!entry.error().empty(), "a refusal says why");
    return 0;
  }
  const std::string written = gradmon::encode(*entry);
  const auto again = gradmon::decode_log_entry(written);
  promise(again.has_value() && gradmon::encode(*again) == written, "an entry encodes to the same bytes");
  promise(again->index() == entry->index(), "an entry keeps its kind");
  if (const auto* asked = std::get_if<gradmon::OfferedEntry>(&*again))
    promise(asked->plan != nullptr, "an offered entry has a plan");
  if (const auto* verdict = std::get_if<gradmon::Verdict>(&*again))
    promise(verdict->commit() == (verdict->plan != nullptr), "a commit has a plan and an abort has none");
  return 0;
}
