// SPDX-License-Identifier: Apache-2.0
#include "writers/alerts/alert_log.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "control/text/alert_words.h"

namespace gradmon {
namespace {

constexpr int kDigits = 3;

std::string words_for(const AlertEvent& event) {
  if (event.rule == name_of(Anomaly::nan)) return std::isnan(event.value) ? "NaN" : "large value";
  if (event.rule == name_of(Anomaly::spike)) return "spike";
  if (event.rule == name_of(Anomaly::turbulence)) return "turbulence";
  if (event.rule == name_of(Anomaly::vanish)) return "vanished norm";
  return "ranks differ";
}

// The previous value; "" without a history.
std::string usual_text(const AlertEvent& event) {
  const std::string mean = number_text(event.history_mean, kDigits);
  if (event.rule == name_of(Anomaly::rank_divergence)) return " (other ranks have " + mean + ")";
  const bool first = !std::isfinite(event.history_mean) || event.history_mean == std::fabs(event.value);
  return first ? "" : " (usually " + mean + ")";
}

// "spike at step 120, rank 0: gradient norm of head.output is 24.4 (usually 0.086), and 91 more series"
std::string line_of(const AlertEvent& event, std::uint64_t more) {
  std::string line = words_for(event) + " at step " + std::to_string(event.step.value) + ", rank " +
                     std::to_string(event.rank.value) + ": " + series_text(event.tag_name, event.op) +
                     " is " + number_text(event.value, kDigits) + usual_text(event);
  return more == 0 ? line : line + ", and " + std::to_string(more) + " more series";
}

}  // namespace

std::vector<std::string> AlertLog::lines(const StepAlerts& alerts, Time now) {
  std::vector<std::string> lines;
  for (auto event = alerts.events.begin(); event != alerts.events.end();) {
    const auto next = std::find_if(event, alerts.events.end(),
                                   [&](const AlertEvent& other) { return other.rule != event->rule; });
    const auto more = static_cast<std::uint64_t>(next - event) - 1 + event->left_out;
    OfRule& rule = of(event->rule);
    const auto freed = static_cast<int>(std::min<std::int64_t>((now - rule.counted_to) / kPause, kBurst));
    rule.lines_left = std::min(rule.lines_left + freed, kBurst);
    rule.counted_to = rule.lines_left == kBurst ? now : rule.counted_to + freed * kPause;
    if (rule.lines_left > 0 && rule.logged_step != event->step.value) {
      --rule.lines_left;
      rule.logged_step = event->step.value;
      lines.push_back(line_of(*event, more));
      const auto not_logged = std::exchange(rule.not_logged, 0);
      if (not_logged > 0)
        lines.back() += "; " + std::to_string(not_logged) + " more alerts of " + event->rule +
                        " since step " + std::to_string(rule.since) + " are not in the log";
    } else {
      if (rule.not_logged == 0) rule.since = event->step.value;
      rule.not_logged += more + 1;
    }
    event = next;
  }
  return lines;
}

// An unknown rule shares the last place.
AlertLog::OfRule& AlertLog::of(const std::string& rule) {
  const auto found = std::find(kAnomalyNames.begin(), kAnomalyNames.end(), rule);
  return rules_[std::min<std::size_t>(static_cast<std::size_t>(found - kAnomalyNames.begin()),
                                      rules_.size() - 1)];
}

}  // namespace gradmon
