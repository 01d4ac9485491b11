// SPDX-License-Identifier: Apache-2.0
#include "control/hub/service/alert_command.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include "control/alerts/alert_json.h"

namespace gradmon {
namespace {

using Json = nlohmann::ordered_json;

// Variables that programs usually need from the hub's environment, which is training's. The others are not
// passed on: they may hold secrets.
constexpr std::array<const char*, 7> kPassedOn{"PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ"};
constexpr std::size_t kRoomForTheRest = 200;  // bytes of the JSON around the alerts, without its texts

std::string text_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

// "NAME=VALUE"; a NUL would end the value.
std::string variable(const std::string& name, std::string value) {
  value.erase(std::remove(value.begin(), value.end(), '\0'), value.end());
  return name + "=" + value;
}

}  // namespace

// Takes the alerts that fit; adds the others to left_out.
std::string AlertCommand::input(const std::vector<RankAlert>& alerts, std::uint64_t left_out) {
  Json json{{"job", job_.name},
            {"launch_id", job_.launch_id},
            {"output_dir", job_.output_dir},
            {"config_path", job_.config_path}};
  Json list = Json::array();
  std::size_t room = LimitedCommand::kMostInput -
                     std::min(text_of(json).size() + kRoomForTheRest, LimitedCommand::kMostInput);
  for (const RankAlert& alert : alerts) {
    Json one = json_of(alert);
    const std::size_t bytes = text_of(one).size() + 1;
    if (bytes > room) {
      ++left_out;
      continue;
    }
    room -= bytes;
    list.push_back(std::move(one));
  }
  json["alerts"] = std::move(list);
  json["left_out"] = left_out;
  json["missed"] = std::exchange(missed_, 0);
  return text_of(json) + '\n';
}

std::vector<std::string> AlertCommand::environment(const RankAlert& alert) const {
  std::vector<std::string> all;
  for (const char* name : kPassedOn) {
    if (const char* value = std::getenv(name)) all.push_back(variable(name, value));
  }
  all.push_back(variable("GRADMON_JOB", job_.name));
  all.push_back(variable("GRADMON_LAUNCH_ID", job_.launch_id));
  all.push_back(variable("GRADMON_OUTPUT_DIR", job_.output_dir));
  all.push_back(variable("GRADMON_ALERT_RULE", alert.rule));
  all.push_back(variable("GRADMON_ALERT_RANK", std::to_string(alert.rank.value)));
  all.push_back(variable("GRADMON_ALERT_STEP", std::to_string(alert.step)));
  all.push_back(variable("GRADMON_ALERT_TAG", alert.tag_name));
  all.push_back(variable("GRADMON_ALERT_MESSAGE", alert.message));
  return all;
}

void AlertCommand::on_alerts(const std::vector<std::string>& exec, Ticks cooldown,
                             const std::vector<RankAlert>& alerts, std::uint64_t left_out, Ticks now) {
  if (exec.empty() || alerts.empty()) return;
  if (running_ || !trigger_.try_fire(now, std::max(cooldown, kLeastPause))) {
    missed_ += alerts.size() + left_out;
    return;
  }
  program_ = exec.front();
  const std::uint64_t untold = missed_ + alerts.size() + left_out;
  auto started =
      LimitedProcess::start({exec, environment(alerts.front()), input(alerts, left_out), kTimeLimit});
  if (started) {
    running_ = std::move(*started);
  } else {
    missed_ = untold;
    failure_ = "on_alert: " + program_ + ": " + started.error();
    failed_to_start_ = true;
  }
}

std::optional<std::string> AlertCommand::poll() {
  if (std::exchange(failed_to_start_, false)) return failure_;
  const auto ended = running_ ? running_->poll() : std::nullopt;
  if (!ended) return std::nullopt;
  running_.reset();
  failure_ = ended->empty() ? "" : "on_alert: " + program_ + " " + *ended;
  return failure_.empty() ? std::nullopt : std::optional(failure_);
}

}  // namespace gradmon
