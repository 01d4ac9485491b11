// SPDX-License-Identifier: Apache-2.0
// Keeps the records of the last collected step, for those in the process who
// want to look at them.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "writers/sink.h"

namespace gradmon {

// Shared by the sink, which fills it, and whoever reads. Any thread.
class LastStep {
 public:
  struct Content {
    Layout layout;                // of the revision
    Step step{-1};                // -1: no step so far
    std::vector<Record> records;  // by kind, then sequence
  };

  Content content() const;
  void set(const Layout& layout, Step step, const std::vector<Record>& records);

 private:
  mutable std::mutex mutex_;
  Content content_;  // guarded by mutex_
};

class MemorySink : public Sink {
 public:
  explicit MemorySink(std::shared_ptr<LastStep> last);

  const char* name() const override { return "memory"; }
  [[nodiscard]] tl::expected<void, SinkError> begin_revision(const Layout& layout) override;
  [[nodiscard]] tl::expected<void, SinkError> write_step(Step step,
                                                         const std::vector<Record>& records) override;
  [[nodiscard]] tl::expected<void, SinkError> flush() override { return {}; }

 private:
  const std::shared_ptr<LastStep> last_;
  Layout layout_;
};

}  // namespace gradmon
