// SPDX-License-Identifier: Apache-2.0
#include "control/alerts/alert_report.h"

#include "control/text/utf8.h"

namespace gradmon {
namespace {

constexpr std::size_t kMostName = 64;
constexpr std::size_t kMostTag = 512;
constexpr std::size_t kMostMessage = 1'000;
constexpr std::size_t kNumbers = 100;  // bytes of the fields other than texts

void cut(std::string& text, std::size_t most) { text.resize(utf8_prefix(text, most).size()); }

}  // namespace

AlertReport bounded(AlertReport report) {
  if (report.alerts.size() > kMostAlertsInAReport) {
    report.left_out += report.alerts.size() - kMostAlertsInAReport;
    report.alerts.resize(kMostAlertsInAReport);
  }
  for (Alert& alert : report.alerts) {
    cut(alert.rule, kMostName);
    cut(alert.op, kMostName);
    cut(alert.tag_name, kMostTag);
    cut(alert.message, kMostMessage);
  }
  return report;
}

std::size_t size_of(const Alert& alert) {
  return kNumbers + alert.rule.size() + alert.op.size() + alert.tag_name.size() + alert.message.size();
}

}  // namespace gradmon
