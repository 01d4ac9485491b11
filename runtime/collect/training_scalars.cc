// SPDX-License-Identifier: Apache-2.0
#include "runtime/collect/training_scalars.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <numeric>
#include <utility>

#include "control/log.h"
#include "writers/sinks/csv_text.h"

namespace gradmon {
namespace {

constexpr int kDigits = 6;

struct NormScalar {
  std::string_view name;
  NormOf of;
  Kind kind;
};
constexpr std::array kNormScalars = {
    NormScalar{"grad-norm", NormOf::all_parameters, Kind::grad_reduced},
    NormScalar{"device_local_norm", NormOf::all_parameters, Kind::grad_unreduced},
    NormScalar{"weight_norm", NormOf::all_parameters, Kind::param_updated},
    NormScalar{"local_norm", NormOf::each_parameter, Kind::grad_unreduced},
    NormScalar{"adam_m_norm", NormOf::each_parameter, Kind::exp_avg},
    NormScalar{"adam_v_norm", NormOf::each_parameter, Kind::exp_avg_sq},
};
constexpr std::string_view kExpertLoad = "expert_load";

const NormScalar* norm_scalar(std::string_view name) {
  const auto* const found = std::find_if(kNormScalars.begin(), kNormScalars.end(),
                                         [name](const NormScalar& scalar) { return scalar.name == name; });
  return found == kNormScalars.end() ? nullptr : found;
}

}  // namespace

ScalarBoard::ScalarBoard(Settings settings, Names names)
    : settings_(std::move(settings)),
      names_(std::move(names)),
      had_value_(settings_.requested.size(), false),
      comes_late_(settings_.requested.size(), false),
      known_(settings_.requested.size(), true),
      came_late_(settings_.requested.size(), false),
      awaited_(settings_.requested.size(), false),
      reported_(settings_.requested.size()) {
  for (const Config::Scalar& scalar : settings_.requested) {
    index_by_name_.emplace(scalar.name, ids_.size());
    ids_.push_back(names_.intern(scalar.name));
  }
}

KindSet ScalarBoard::kinds(NormOf of) const {
  KindSet kinds = 0;
  for (const NormScalar& scalar : kNormScalars) {
    if (scalar.of == of && index_by_name_.count(scalar.name) != 0) kinds |= bit_of(scalar.kind);
  }
  return kinds;
}

void ScalarBoard::begin_step(TimePoint now, std::int64_t samples) {
  began_ = now;
  samples_before_ = samples;
  std::fill(reported_.begin(), reported_.end(), std::nullopt);
  local_loss_sum_.reset();
  norms_.clear();
  squares_.clear();
  partial_ = 0;
  experts_.clear();
}

void ScalarBoard::report(std::string_view name, double value) {
  if (const auto place = index_by_name_.find(name); place != index_by_name_.end())
    reported_[place->second] = value;
  if (name == "local_loss") local_loss_sum_ = local_loss_sum_.value_or(0) + value;
}

void ScalarBoard::count_experts(std::string_view layer, const std::vector<std::int64_t>& tokens) {
  if (index_by_name_.count(kExpertLoad) == 0) return;
  auto counts = experts_.find(layer);
  if (counts == experts_.end()) counts = experts_.emplace(layer, tokens.size()).first;
  counts->second.resize(std::max(counts->second.size(), tokens.size()));
  for (std::size_t i = 0; i < tokens.size(); ++i) counts->second[i] += tokens[i];
}

void ScalarBoard::take_norm(NormOf of, Kind kind, std::uint32_t parameter, double norm) {
  if (of == NormOf::all_parameters) {
    squares_[kind] += norm * norm;
  } else {
    norms_.push_back({kind, parameter, norm});
  }
}

void ScalarBoard::miss_norm(NormOf of, Kind kind) noexcept {
  if (of == NormOf::all_parameters) partial_ |= bit_of(kind);
}

void ScalarBoard::end_step(TimePoint now, std::int64_t samples) {
  rows_.clear();
  seconds_ = std::chrono::duration<double>(now - began_).count();
  samples_ = samples - samples_before_;
  for (std::size_t requested = 0; requested < settings_.requested.size(); ++requested) {
    const std::size_t before = rows_.size();
    append_rows(requested);
    const bool computed = rows_.size() > before;
    if (computed) had_value_[requested] = true;
    known_[requested] = reported_[requested].has_value();
    came_late_[requested] = false;
    awaited_[requested] = !known_[requested] && (!computed || comes_late_[requested]);
  }
}

bool ScalarBoard::awaits() const { return std::count(awaited_.begin(), awaited_.end(), true) > 0; }

bool ScalarBoard::report_late(std::string_view name, double value) {
  if (name == "local_loss" && index_by_name_.count(name) == 0) name = "device_local_loss";
  const auto place = index_by_name_.find(name);
  if (place == index_by_name_.end()) return true;
  const std::size_t requested = place->second;
  if (known_[requested]) return came_late_[requested];  // Said twice: it does not become the next step's.
  comes_late_[requested] = true;
  if (!awaited_[requested]) return true;
  const auto last = std::remove_if(rows_.begin(), rows_.end(),
                                   [=](const ScalarRow& row) { return row.requested == requested; });
  rows_.erase(last, rows_.end());
  const auto after = std::find_if(rows_.begin(), rows_.end(),
                                  [=](const ScalarRow& row) { return row.requested > requested; });
  rows_.insert(after, {requested, ids_[requested], value});
  had_value_[requested] = known_[requested] = came_late_[requested] = true;
  awaited_[requested] = false;
  return true;
}

std::vector<std::string> ScalarBoard::without_value() const {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < had_value_.size(); ++i) {
    if (!had_value_[i]) names.push_back(settings_.requested[i].name);
  }
  return names;
}

void ScalarBoard::append_rows(std::size_t requested) {
  const std::string& name = settings_.requested[requested].name;
  if (reported_[requested]) return add(requested, ids_[requested], *reported_[requested]);
  if (const NormScalar* norm = norm_scalar(name); norm && norm->of == NormOf::each_parameter) {
    for (const ParameterNorm& taken : norms_) {
      if (taken.kind == norm->kind) add(requested, name_of_norm(requested, taken.parameter), taken.norm);
    }
  } else if (name == kExpertLoad) {
    for (const auto& [layer, tokens] : experts_) {
      const double all = static_cast<double>(std::accumulate(tokens.begin(), tokens.end(), std::int64_t{0}));
      for (std::size_t i = 0; i < tokens.size() && all > 0; ++i) {
        const std::string expert = name + "/" + layer + "/" + std::to_string(i);
        add(requested, names_.intern(expert), static_cast<double>(tokens[i]) / all);
      }
    }
  } else if (const auto value = single_value(name)) {
    add(requested, ids_[requested], *value);
  }
}

std::optional<double> ScalarBoard::single_value(const std::string& name) const {
  if (name == "device_local_loss") return local_loss_sum_;
  if (const NormScalar* norm = norm_scalar(name)) {
    const auto squares = squares_.find(norm->kind);
    const bool whole = squares != squares_.end() && (partial_ & bit_of(norm->kind)) == 0;
    return whole ? std::optional(std::sqrt(squares->second)) : std::nullopt;
  }
  if (name == "batch-size") return samples_ > 0 ? std::optional(static_cast<double>(samples_)) : std::nullopt;
  return timed_value(name);
}

std::optional<double> ScalarBoard::timed_value(const std::string& name) const {
  if (!(seconds_ > 0)) return std::nullopt;
  if (name == "iteration-time") return seconds_;
  if (samples_ <= 0) return std::nullopt;
  const double a_second = static_cast<double>(samples_) / seconds_;
  const double throughput = a_second / settings_.devices;
  if (name == "throughput") return throughput;
  if (name == "throughput_linearity" && settings_.throughput_baseline)
    return throughput / *settings_.throughput_baseline;
  if (name == "B-samples-per-day") return a_second * 86'400 / 1e9;
  return std::nullopt;
}

void ScalarBoard::add(std::size_t requested, std::uint32_t name, double value) {
  rows_.push_back({requested, name, value});
}

std::uint32_t ScalarBoard::name_of_norm(std::size_t requested, std::uint32_t parameter) {
  const auto known = norm_names_.find({requested, parameter});
  if (known != norm_names_.end()) return known->second;
  const std::string name = settings_.requested[requested].name + "/" + names_.parameter(parameter);
  return norm_names_.emplace(std::pair(requested, parameter), names_.intern(name)).first->second;
}

std::string scalar_line(Rank rank, int world_size, Step step, std::int64_t samples,
                        const std::vector<NamedScalar>& scalars) {
  std::string line;
  if (world_size > 1) line += "rank " + std::to_string(rank.value) + ": ";
  line += "step " + std::to_string(step.value);
  if (samples > 0) line += ", " + std::to_string(samples) + " samples";
  const char* separator = ": ";
  for (const NamedScalar& scalar : scalars) {
    line += separator;
    for (const char c : scalar.name) line += static_cast<unsigned char>(c) < ' ' || c == '\x7f' ? '?' : c;
    line += ' ';
    append_number(line, scalar.value, kDigits);
    separator = ", ";
  }
  return line;
}

namespace {

constexpr const char* kWhat = "scalars";

ScalarBoard::Settings board_settings(const Config& config, int world_size) {
  return {config.scalars, config.throughput_baseline, world_size};
}

ScalarBoard::Names board_names(const std::shared_ptr<NameTable>& names) {
  return {[names](const std::string& name) { return names->intern(name); },
          [names](std::uint32_t parameter) {
            return with_stage(names->vpp_stage(parameter), names->name(parameter));
          }};
}

double norm_in(const Record& record) { return record.values[static_cast<std::size_t>(Op::norm)]; }

}  // namespace

TrainingScalars::TrainingScalars(const Config& config, Revision revision, Context context)
    : context_(std::move(context)),
      board_(board_settings(config, context_.world_size), board_names(context_.names)),
      rows_(context_.stream, revision, 0) {}

void TrainingScalars::begin_step(Step step, std::int64_t samples) noexcept {
  step_ = step;
  if (fuse_.tripped()) return;
  fuse_.guard(kWhat, [&] { board_.begin_step(std::chrono::steady_clock::now(), samples); });
}

void TrainingScalars::report(std::string_view name, double value) noexcept {
  fuse_.guard(kWhat, [&] { board_.report(name, value); });
}

void TrainingScalars::count_experts(std::string_view layer,
                                    const std::vector<std::int64_t>& tokens) noexcept {
  fuse_.guard(kWhat, [&] { board_.count_experts(layer, tokens); });
}

void TrainingScalars::on_record(const Record& record) noexcept {
  fuse_.guard(kWhat, [&] {
    const auto take = [&](NormOf of) { board_.take_norm(of, record.kind, record.target, norm_in(record)); };
    if ((record.readers & kForEachNorm) != 0) take(NormOf::each_parameter);
    if ((record.readers & (kForWholeNorm | kForWholeNormBetween)) != 0) take(NormOf::all_parameters);
  });
}

void TrainingScalars::on_missing_row(Kind kind) noexcept { board_.miss_norm(NormOf::all_parameters, kind); }

void TrainingScalars::end_step(std::int64_t samples) noexcept {
  const auto now = std::chrono::steady_clock::now();
  if (fuse_.tripped()) return;
  fuse_.guard(kWhat, [&] {
    board_.end_step(now, samples);
    ended_ = {step_, samples};
  });
  if (!board_.awaits()) settle();
}

bool TrainingScalars::report_late(std::string_view name, double value) noexcept {
  bool taken = true;
  fuse_.guard(kWhat, [&] { taken = board_.report_late(name, value); });
  return taken;
}

void TrainingScalars::settle() noexcept {
  board_.close();
  if (!ended_ || fuse_.tripped()) return ended_.reset();
  fuse_.guard(kWhat, [&] {
    write_rows(*ended_);
    if (context_.steps == Steps::collected) write_log(*ended_);
    ended_one_ = true;
  });
  ended_.reset();
}

void TrainingScalars::drop() noexcept {
  board_.close();
  ended_.reset();
}

void TrainingScalars::write_rows(const Ended& ended) {
  const std::int64_t samples = ended.samples;
  rows_.begin_step(ended.step);
  std::uint64_t sequence = 0;
  for (const ScalarRow& row : board_.rows()) {
    if (!board_.requested()[row.requested].records) continue;
    RowKey key{Kind::scalar, row.name, sequence++};
    key.readers = context_.steps == Steps::collected ? kForRows : kForFlight;
    if (samples > 0) {
      rows_.write(key, {{Column::samples, static_cast<double>(samples)}, {Column::value, row.value}});
    } else {
      rows_.write(key, {{Column::value, row.value}});
    }
  }
}

void TrainingScalars::write_log(const Ended& ended) {
  std::vector<ScalarRow> logged;
  for (const ScalarRow& row : board_.rows()) {
    if (board_.requested()[row.requested].log) logged.push_back(row);
  }
  if (logged.empty()) return;
  // The writer thread formats and writes the line.
  context_.writer.write_file([logged = std::move(logged), names = context_.names, rank = context_.rank,
                              world_size = context_.world_size, resumed = context_.samples, step = ended.step,
                              samples = ended.samples]() mutable {
    if (resumed && samples > 0) samples = resumed->at(step, samples).value_or(0);
    std::vector<NamedScalar> named;
    named.reserve(logged.size());
    for (const ScalarRow& row : logged) named.push_back({names->name(row.name), row.value});
    log_info(scalar_line(rank, world_size, step, samples, named));
    return tl::expected<void, std::string>{};
  });
}

std::vector<std::string> TrainingScalars::warnings() const {
  std::vector<std::string> warnings;
  if (!ended_one_) return warnings;
  for (const std::string& name : board_.without_value()) {
    warnings.push_back("scalar \"" + name + "\" was never reported and cannot be computed here");
  }
  return warnings;
}

}  // namespace gradmon
