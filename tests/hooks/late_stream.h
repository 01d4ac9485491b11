// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "tests/hooks/fake_stream.h"
#include "writers/queue/record_batch.h"

namespace gradmon {

// Takes records whose values come later.
class LateStream : public FakeStream {
 public:
  std::shared_ptr<LateValues> late;
  int taken = 0;

  bool take_late(const std::shared_ptr<LateValues>& values) noexcept override {
    late = values;
    ++taken;
    return true;
  }
  // As the writer thread does.
  void complete() {
    RecordBatch batch = records;
    complete_records(batch, late.get());
    records.assign(batch.begin(), batch.end());
  }
};

}  // namespace gradmon
