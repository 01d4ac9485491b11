// SPDX-License-Identifier: Apache-2.0
#include "hooks/collectives/collective_probe.h"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <utility>

#include "control/log.h"
#include "hooks/collectives/collective_readings.h"
#include "hooks/names/target_names.h"

namespace gradmon {

NativeCallSites::NativeCallSites(const std::vector<WatchedModule>& modules)
    : names_(module_names(modules)), indices_(module_indices(modules)) {}

CallSite NativeCallSites::here() const {
  CallSite site{"native", {}, 0};
  for (const std::size_t module : modules_around(indices_)) {
    const TargetName& name = names_[module];
    if (site.frames.empty()) site.vpp_stage = name.vpp_stage;
    site.frames.push_back(name.name.empty() ? "native" : "native[" + name.name + "]");
  }
  if (!site.frames.empty()) site.place = site.frames.front();
  return site;
}

namespace {

// The first sequence number here. Rows of Kind::other from parameters have lower numbers.
constexpr std::uint64_t kFirstSequence = std::uint64_t{1} << 32U;

std::string place_of(const StackFrame& frame) {
  return frame.path.substr(frame.path.rfind('/') + 1) + "[" + std::to_string(frame.line) + "]";
}

CallSite call_site_here(const StackSource& stack, const NativeCallSites& native) {
  CallSite site = native.here();
  if (!stack) return site;
  const auto [frames, wait_is_told] = stack();
  site.wait_is_told = wait_is_told;
  if (frames.empty()) return site;
  site.place = place_of(frames.front());
  site.frames.clear();
  for (const StackFrame& frame : frames) site.frames.push_back(place_of(frame) + " " + frame.function);
  return site;
}

void count(RowWriter& rows, std::uint64_t times, const char* why) {
  for (std::uint64_t i = 0; i < times; ++i)
    rows.count_not_applicable(Kind::other, std::nullopt, "a collective call", why);
}

}  // namespace

CollectiveProbe::CollectiveProbe(const CollectiveSettings& settings, double eps,
                                 const std::vector<WatchedModule>& modules, StackSource stack,
                                 RecordStream& stream, HookFuse& fuse)
    : native_(std::make_shared<NativeCallSites>(modules)),
      needs_tracker_(!stack || std::any_of(modules.begin(), modules.end(),
                                           [](const WatchedModule& module) { return module.vpp_stage > 0; })),
      readings_(std::make_shared<CollectiveReadings>(
          settings, eps,
          [native = native_, stack = std::move(stack)] { return call_site_here(stack, *native); })),
      stream_(stream),
      fuse_(fuse) {}

CollectiveProbe::~CollectiveProbe() { disarm(); }

void CollectiveProbe::begin_step(Step) {
  readings_->open();
  observer_.emplace(readings_);
}

void CollectiveProbe::disarm() noexcept {
  if (!observer_) return;
  observer_.reset();
  readings_->close();
}

void CollectiveProbe::write_rows(RowWriter& rows) {
  const std::chrono::nanoseconds spent = readings_->hook_time();
  fuse_.add_time(spent - std::exchange(charged_, spent));
  if (const auto failure = readings_->failure())
    throw std::runtime_error(failure->target + ": " + failure->cause);
  CollectiveStep step = readings_->take();
  for (const std::string& sentence : step.unread) stream_.note_absence(sentence);
  for (const std::string& line : step.log) log_info("collective call " + line);
  std::uint64_t sequence = kFirstSequence;
  for (const CollectiveRow& row : step.rows) {
    const RowKey key{Kind::other, stream_.target_id(row.vpp_stage, row.name), sequence++};
    rows.write_folded(key, row.readings, row.name);
  }
  count(rows, step.late, "did not complete within its step");
  count(rows, step.failed, "failed");
  count(rows, step.untold, "nothing told within its step that it could be read");
  count(rows, step.changed, "its outputs were overwritten before or while they were read");
}

}  // namespace gradmon
