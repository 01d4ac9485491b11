// SPDX-License-Identifier: Apache-2.0
// Keeps the records of the last collected step in memory, for the training program to read.
#pragma once

#include <memory>
#include <vector>

#include "writers/queue/sink.h"
#include "writers/sinks/last_step.h"

namespace gradmon {

class MemorySink : public Sink {
 public:
  // `implied`: the config does not name this sink.
  explicit MemorySink(std::shared_ptr<LastStep> last, bool implied = false);

  const char* name() const override { return "memory"; }
  bool counts() const override { return !implied_; }
  [[nodiscard]] tl::expected<void, SinkError> begin_revision(const Layout& layout) override;
  [[nodiscard]] tl::expected<void, SinkError> write_step(Step step,
                                                         const std::vector<Record>& records) override;
  [[nodiscard]] tl::expected<void, SinkError> flush() override { return {}; }

 private:
  const std::shared_ptr<LastStep> last_;
  const bool implied_;
  Layout layout_;
};

}  // namespace gradmon
