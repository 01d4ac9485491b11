// SPDX-License-Identifier: Apache-2.0
// Settings that collect all activations, and their rows in a FakeStream.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hooks/hook_set.h"
#include "tests/hooks/fake_stream.h"

namespace gradmon {

using Lines = std::vector<std::string>;

inline HookSettings activations() {
  HookSettings settings;
  settings.activations.forward = settings.activations.backward = settings.activations.all = true;
  return settings;
}

// The rows of a kind, "name/micro step", in order of arrival. Their sequence numbers must increase.
inline Lines rows(const FakeStream& stream, Kind kind) {
  Lines found;
  std::uint64_t last = 0;
  for (const Record& record : stream.records) {
    if (record.kind != kind) continue;
    if (!found.empty() && record.sequence <= last) return {"the sequence numbers do not increase"};
    last = record.sequence;
    found.push_back(stream.text(record.target).substr(2) + "/" + std::to_string(record.micro_step));
  }
  return found;
}

// -12345: there is no such row.
inline double value(const FakeStream& stream, Kind kind, const std::string& name, Op op, int micro_step = 0) {
  for (const Record& record : stream.records) {
    if (record.kind == kind && stream.text(record.target) == "0:" + name && record.micro_step == micro_step)
      return record.values[static_cast<std::size_t>(op)];
  }
  return -12345;
}

}  // namespace gradmon
