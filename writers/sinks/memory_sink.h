// SPDX-License-Identifier: Apache-2.0
// Keeps the records of the last collected step in memory, for the training program to read.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "control/step.h"
#include "writers/queue/record_batch.h"
#include "writers/queue/sink.h"

namespace gradmon {

// The records of the last collected step. The memory sink sets them, the program reads them. Any
// thread.
class LastStep {
 public:
  struct Content {
    Layout layout;        // of the revision
    Step step{-1};        // -1: no step so far
    RecordBatch records;  // by kind, then sequence
  };

  Content content() const;
  // A further call for the same step adds its records.
  void set(const Layout& layout, Step step, const RecordBatch& records);

 private:
  mutable std::mutex mutex_;
  Content content_;  // guarded by mutex_
};

class MemorySink : public Sink {
 public:
  // `implied`: the config does not name this sink.
  explicit MemorySink(std::shared_ptr<LastStep> last, bool implied = false);

  const char* name() const override { return "memory"; }
  bool counts() const override { return !implied_; }
  [[nodiscard]] tl::expected<void, SinkError> begin_revision(const Layout& layout) override;
  [[nodiscard]] tl::expected<void, SinkError> write_step(Step step, const RecordBatch& records) override;
  [[nodiscard]] tl::expected<void, SinkError> flush() override { return {}; }

 private:
  const std::shared_ptr<LastStep> last_;
  const bool implied_;
  Layout layout_;
};

}  // namespace gradmon
