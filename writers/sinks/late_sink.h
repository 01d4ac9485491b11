// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "writers/queue/sink.h"

namespace gradmon {

// Makes the real sink when the first rows arrive. Until then no file and no directory exists for it.
class LateSink : public Sink {
 public:
  // `name` outlives it; `make` is called once, on the writer thread.
  LateSink(const char* name, std::function<std::unique_ptr<Sink>()> make)
      : name_(name), make_(std::move(make)) {}

  const char* name() const override { return name_; }
  void report_parts(OnPart on_part) override { on_part_ = std::move(on_part); }
  [[nodiscard]] tl::expected<void, SinkError> begin_revision(const Layout& layout) override;
  [[nodiscard]] tl::expected<void, SinkError> write_step(Step step,
                                                         const std::vector<Record>& records) override;
  [[nodiscard]] tl::expected<void, SinkError> flush() override;

 private:
  const char* const name_;
  const std::function<std::unique_ptr<Sink>()> make_;
  OnPart on_part_;
  Layout layout_;
  std::unique_ptr<Sink> sink_;  // null before the first rows
};

}  // namespace gradmon
