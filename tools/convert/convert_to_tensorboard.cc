// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/convert_to_tensorboard.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/convert/conversion_run.h"
#include "tools/convert/rank_rows.h"
#include "writers/sinks/event_files.h"
#include "writers/sinks/event_records.h"

namespace gradmon {
namespace {

constexpr std::size_t kBytesOfAPart = std::size_t{1} << 20U;
constexpr std::int32_t kSmallMicroSteps = 1024;

std::string micro_step_text(std::int32_t micro_step) { return ":micro" + std::to_string(micro_step); }

// Writes the rows of one kind and rank as event files into one directory. A value has the sink's tag
// (writers/FORMAT.md), in msprobe's form "vp{vpp_stage}:{name}[:micro{m}]/{op}", and the time of the last
// write to the CSV file. One thread.
class EventDirectory {
 public:
  EventDirectory(std::filesystem::path directory, Kind kind, TagForm form);

  // Writes all rows until the end, or until the rows are stopped. An error names the file.
  [[nodiscard]] tl::expected<void, std::string> write(RankRows& rows);

 private:
  void append(const RankRows& rows, const Row& row);
  void append_scalar(const Row& row, std::string_view name, double wall_time);
  std::string_view target_tag(const RankRows& rows);
  tl::expected<void, std::string> flush(double wall_time);

  const std::filesystem::path directory_;
  const Kind kind_;
  const TagForm form_;
  std::array<std::string, kFields> columns_;  // "actv_norm/", in msprobe's form "/norm"
  std::vector<std::string> targets_;          // "vp0:fc1.input", by number; empty: not needed so far
  std::vector<std::string> micro_steps_;      // ":micro3", of the small ones
  std::string large_micro_step_;
  EventFiles files_;
  EventRows part_;
};

EventDirectory::EventDirectory(std::filesystem::path directory, Kind kind, TagForm form)
    : directory_(std::move(directory)), kind_(kind), form_(form) {
  for (Field field = 0; field < kFields; ++field) {
    columns_[field] = std::string("/") + name_of_field(field);
    if (form_ == TagForm::gradmon) columns_[field] = column_in_tag(kind, name_of_field(field), {}, {});
  }
  for (std::int32_t i = 0; i < kSmallMicroSteps; ++i) micro_steps_.push_back(micro_step_text(i));
}

std::string_view EventDirectory::target_tag(const RankRows& rows) {
  const std::uint32_t id = rows.target();
  if (id >= targets_.size()) targets_.resize(id + std::size_t{1});
  if (targets_[id].empty()) {
    targets_[id] = tag_of_target(rows.names().vpp_stage(id), rows.names().name(id));
    if (form_ == TagForm::msprobe) targets_[id].insert(0, "vp");
  }
  return targets_[id];
}

// Over steps, then over samples, like the sink.
void EventDirectory::append_scalar(const Row& row, std::string_view name, double wall_time) {
  if (!row.has(kValueField)) return;
  TaggedNumber number{{name, {}, {}}, static_cast<float>(row.values[kValueField])};
  append_scalar_event(part_.bytes, row.step, wall_time, &number, &number + 1);
  const double samples = row.values[kSamplesField];
  if (!row.has(kSamplesField) || !(samples >= 0 && samples < 0x1p63) || !drawn_over_samples(name)) return;
  number.tag[1] = kOverSamples;
  append_scalar_event(part_.bytes, static_cast<std::int64_t>(samples), wall_time, &number, &number + 1);
}

void EventDirectory::append(const RankRows& rows, const Row& row) {
  const std::string_view target = target_tag(rows);
  if (kind_ == Kind::scalar && form_ == TagForm::gradmon) {
    append_scalar(row, target.substr(target.find(':') + 1), rows.written());
    return part_.ends.push_back(part_.bytes.size());
  }
  std::string_view micro_step;
  if (row.micro_step >= kSmallMicroSteps) {
    micro_step = large_micro_step_ = micro_step_text(row.micro_step);
  } else if (row.micro_step >= 0) {
    micro_step = micro_steps_[static_cast<std::size_t>(row.micro_step)];
  }
  std::array<TaggedNumber, kFields> numbers;
  std::size_t count = 0;
  for (Field field = 0; field < kFields; ++field) {
    if (!row.has(field)) continue;
    TaggedNumber& number = numbers[count++];
    number.number = static_cast<float>(row.values[field]);
    if (form_ == TagForm::msprobe) {
      number.tag = {target, micro_step, columns_[field]};
    } else {
      number.tag = {columns_[field], without_first_stage(target), micro_step};
    }
  }
  append_scalar_event(part_.bytes, row.step, rows.written(), numbers.data(), numbers.data() + count);
  part_.ends.push_back(part_.bytes.size());
}

tl::expected<void, std::string> EventDirectory::flush(double wall_time) {
  if (part_.ends.empty()) return {};
  const auto outcome = files_.append(directory_, file_version_record(wall_time), part_);
  part_.bytes.clear();
  part_.ends.clear();
  if (!outcome.error.empty()) return tl::unexpected(outcome.error);
  return {};
}

tl::expected<void, std::string> EventDirectory::write(RankRows& rows) {
  double wall_time = 0;
  while (const Row* const row = rows.next()) {
    wall_time = rows.written();
    append(rows, *row);
    if (part_.bytes.size() < kBytesOfAPart) continue;
    if (auto flushed = flush(wall_time); !flushed) return flushed;
  }
  return flush(wall_time);
}

struct Outcome {
  Problems problems;
  std::string error;  // empty: none
};

std::string convert(const ConversionTask& task, const std::filesystem::path& output, TagForm form,
                    ConversionMeter& meter, Problems& problems) {
  try {
    Problems reported_already;
    const std::vector<InputFile> files = task.files(reported_already);
    RankRows rows(files, meter, problems);
    EventDirectory directory(output / ("rank" + std::to_string(task.rank->rank)) / name_of(task.kind),
                             task.kind, form);
    const auto written = directory.write(rows);
    return written ? "" : written.error();
  } catch (const std::exception& error) {  // of the standard library: out of memory
    return std::string("cannot convert ") + name_of(task.kind) + " of rank " +
           std::to_string(task.rank->rank) + ": " + error.what();
  }
}

}  // namespace

tl::expected<void, std::string> convert_to_tensorboard(const ConversionTasks& tasks,
                                                       const std::filesystem::path& output, TagForm form,
                                                       int threads, ConversionMeter& meter,
                                                       Problems& problems) {
  std::vector<Outcome> outcomes(tasks.tasks.size());
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < outcomes.size() && !meter.stop; i = next++) {
      outcomes[i].error = convert(tasks.tasks[i], output, form, meter, outcomes[i].problems);
      if (!outcomes[i].error.empty()) meter.stop = true;
    }
  };
  { const OnThreads workers(std::min(static_cast<std::size_t>(threads), outcomes.size()), work); }
  for (const Outcome& outcome : outcomes) problems.add(outcome.problems);
  const auto failed = std::find_if(outcomes.begin(), outcomes.end(),
                                   [](const Outcome& outcome) { return !outcome.error.empty(); });
  if (failed != outcomes.end()) return tl::unexpected(failed->error);
  return {};
}

}  // namespace gradmon
