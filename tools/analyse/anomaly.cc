// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/anomaly.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace gradmon {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kForward = 0;

// Returns -1 if unknown, as for parameters.
int phase_of_tag(const std::string& tag) {
  constexpr std::array<std::pair<std::string_view, int>, 7> kPhases = {{{"actv", kForward},
                                                                        {"actv_grad", 1},
                                                                        {"pre_grad", 1},
                                                                        {"post_grad", 1},
                                                                        {"acc_grad", 1},
                                                                        {"exp_avg", 2},
                                                                        {"exp_avg_sq", 2}}};
  const std::string task = tag.substr(tag.rfind('/') + 1);  // the whole tag without a "/"
  for (const auto& [name, phase] : kPhases) {
    if (task == name) return phase;
  }
  return -1;
}

}  // namespace

tl::expected<Anomaly, std::string> read_anomaly(const std::string& key, const nlohmann::json& entry) {
  if (!entry.is_object())
    return tl::unexpected<std::string>("expected an object, such as {\"rank\": 0, \"step\": 1, ...}");
  Anomaly anomaly;
  anomaly.key = key;
  for (const auto& [name, number] : {std::pair{"rank", &anomaly.rank},
                                     {"step", &anomaly.step},
                                     {"micro_step", &anomaly.micro_step},
                                     {"pp_stage", &anomaly.pp_stage},
                                     {"vpp_stage", &anomaly.vpp_stage},
                                     {"call_id", &anomaly.call_id}}) {
    const auto field = entry.find(name);
    if (field == entry.end()) continue;
    if (!field->is_number_integer())
      return tl::unexpected(std::string("expected a whole number for ") + name);
    *number = field->get<std::int64_t>();
  }
  for (const auto& [name, text] : {std::pair{"tag_name", &anomaly.tag_name}, {"message", &anomaly.message}}) {
    const auto field = entry.find(name);
    if (field == entry.end() || field->is_null()) continue;
    if (!field->is_string()) return tl::unexpected(std::string("expected a text for ") + name);
    *text = field->get<std::string>();
  }
  if (const auto mates = entry.find("group_mates"); mates != entry.end()) anomaly.group_mates = Json(*mates);
  return anomaly;
}

bool happened_before(const Anomaly& a, const Anomaly& b) {
  const auto key = [](const Anomaly& anomaly) {
    const int phase = phase_of_tag(anomaly.tag_name);
    // Not -stage, which may overflow.
    const auto stage = [&](std::int64_t number) { return phase == kForward ? number : ~number; };
    return std::tuple(anomaly.step, anomaly.micro_step, phase, stage(anomaly.vpp_stage),
                      stage(anomaly.pp_stage), anomaly.call_id);
  };
  return key(a) < key(b);
}

std::vector<Anomaly> first_of(std::vector<Anomaly> anomalies, std::size_t count) {
  std::stable_sort(anomalies.begin(), anomalies.end(), happened_before);
  if (anomalies.size() > count)
    anomalies.erase(anomalies.begin() + static_cast<std::ptrdiff_t>(count), anomalies.end());
  return anomalies;
}

std::string analyse_json(const std::vector<Anomaly>& anomalies) {
  Json all = Json::object();
  auto& members = all.get_ref<Json::object_t&>();
  std::unordered_map<std::string, std::size_t> places;
  for (const Anomaly& anomaly : anomalies) {
    Json entry = {{"rank", anomaly.rank},
                  {"step", anomaly.step},
                  {"micro_step", anomaly.micro_step},
                  {"pp_stage", anomaly.pp_stage},
                  {"vpp_stage", anomaly.vpp_stage},
                  {"call_id", anomaly.call_id},
                  {"tag_name", anomaly.tag_name},
                  {"message", anomaly.message},
                  {"group_mates", anomaly.group_mates}};
    // Not operator[], which scans all members.
    const auto [place, is_new] = places.emplace(anomaly.key, members.size());
    if (is_new) {
      members.emplace_back(anomaly.key, std::move(entry));
    } else {
      (members.begin() + static_cast<std::ptrdiff_t>(place->second))->second = std::move(entry);
    }
  }
  return all.dump(1, ' ', true, Json::error_handler_t::replace);
}

}  // namespace gradmon
