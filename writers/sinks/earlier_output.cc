// SPDX-License-Identifier: Apache-2.0
#include "writers/sinks/earlier_output.h"

#include <exception>
#include <iterator>

#include "control/log.h"

namespace gradmon {

bool ResumedSamples::find() noexcept {
  if (earlier_) return true;
  std::string problem;
  try {
    if (auto found = find_(first_step_)) {
      earlier_ = std::move(*found);
    } else {
      problem = "the number of samples of the earlier job cannot be read: " + found.error();
    }
  } catch (const std::exception& error) {
    problem = error.what();
  }
  if (!problem.empty() && this->problem().empty()) log_warn(problem + "; rows lack it until it can be read");
  {
    const std::lock_guard lock(mutex_);
    problem_ = std::move(problem);
  }
  if (!earlier_) return false;
  const auto after = earlier_->lower_bound(first_step_.value);
  const std::int64_t before = after == earlier_->begin() ? 0 : std::prev(after)->second;
  offset_ = counted_first_ > before ? 0 : before;
  return true;
}

std::optional<std::int64_t> ResumedSamples::at(Step step, std::int64_t counted) noexcept {
  if (!find()) return std::nullopt;
  if (const auto same = earlier_->find(step.value); same != earlier_->end()) offset_ = same->second - counted;
  return counted + offset_;
}

void ResumedSamples::amend(RecordBatch& rows) noexcept {
  constexpr auto kSamples = static_cast<std::size_t>(Column::samples);
  const auto has_samples = [](Kind kind, ValueMask mask) {
    return kind == Kind::scalar && (mask & bit_of(Column::samples)) != 0;
  };
  rows.change(has_samples, [this](Record& row) {
    const auto number = at(Step{row.step}, static_cast<std::int64_t>(row.values[kSamples]));
    if (number) {
      row.values[kSamples] = static_cast<double>(*number);
    } else {
      row.mask &= static_cast<ValueMask>(~bit_of(Column::samples));
    }
    return true;
  });
}

std::string ResumedSamples::problem() const {
  const std::lock_guard lock(mutex_);
  return problem_;
}

}  // namespace gradmon
