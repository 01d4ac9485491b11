// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/anomaly_dumps.h"

#include <algorithm>
#include <array>
#include <functional>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "control/files/file_access.h"
#include "control/text/json_depth.h"

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

namespace {

struct DumpOutcome {
  bool is_object = false;  // the text begins as an object
  bool is_whole = false;   // and is JSON to its end
};

using Value = nlohmann::json;

// Builds one member of the outermost object at a time. Members return true to continue.
class EntryBuilder : public nlohmann::json_sax<Value> {
 public:
  using Take = std::function<void(const std::string&, const Value&)>;
  explicit EntryBuilder(const Take& take) : take_(take) {}

  bool in_object() const { return in_object_; }

  bool null() override { return scalar(nullptr); }
  bool boolean(bool value) override { return scalar(value); }
  bool number_integer(number_integer_t value) override { return scalar(value); }
  bool number_unsigned(number_unsigned_t value) override { return scalar(value); }
  bool number_float(number_float_t value, const string_t& /*text*/) override { return scalar(value); }
  bool string(string_t& value) override { return scalar(std::move(value)); }
  bool binary(binary_t& /*value*/) override { return false; }  // not in JSON
  bool start_object(std::size_t /*size*/) override { return begin(Value::object()); }
  bool start_array(std::size_t /*size*/) override { return begin(Value::array()); }
  bool end_object() override { return end(); }
  bool end_array() override { return end(); }
  bool key(string_t& name) override {
    (open_.empty() ? entry_key_ : member_) = std::move(name);
    return true;
  }
  bool parse_error(std::size_t /*place*/, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    return false;
  }

 private:
  bool begin(Value empty) {
    if (!in_object_) return in_object_ = empty.is_object();
    open_.push_back(&add(std::move(empty)));
    return true;
  }
  bool end() {
    if (open_.empty()) return true;  // of the outermost object
    open_.pop_back();
    if (open_.empty()) take_(entry_key_, entry_);
    return true;
  }
  bool scalar(Value value) {
    if (!in_object_) return false;
    add(std::move(value));
    if (open_.empty()) take_(entry_key_, entry_);
    return true;
  }
  Value& add(Value value) {
    if (open_.empty()) return entry_ = std::move(value);
    Value& parent = *open_.back();
    if (!parent.is_array()) return parent[member_] = std::move(value);
    parent.push_back(std::move(value));
    return parent.back();
  }

  const Take& take_;
  bool in_object_ = false;
  std::string entry_key_;
  Value entry_;
  std::string member_;        // key of the next value in the last of open_
  std::vector<Value*> open_;  // objects and arrays in entry_, from the outermost on
};

// Calls `take` with key and value of each member of a JSON object as soon as it is parsed: a dump may be
// large, and torn. Holds one value. Takes time in proportion to the text, unlike a callback of nlohmann's
// parser, which scans all values beside each object.
DumpOutcome each_dump_entry(const std::string& text,
                            const std::function<void(const std::string&, const Value&)>& take) {
  EntryBuilder builder(take);
  const bool whole = Value::sax_parse(text, &builder);
  return {builder.in_object(), whole};
}

namespace fs = std::filesystem;

constexpr off_t kMaxDumpBytes = off_t{512} << 20;
constexpr std::size_t kMessages = 10;
constexpr std::size_t kMostUnsorted = 100'000;  // anomalies in memory besides the kept ones

class DumpReader {
 public:
  explicit DumpReader(const AnomalyRequest& request) : request_(request) {}

  void read(const fs::path& file) {
    const auto text = read_checked_file(file, 0, [](const struct stat& status) -> std::string {
      if (!S_ISREG(status.st_mode)) return "not a regular file";
      return status.st_size > kMaxDumpBytes ? "larger than 512 MiB" : "";
    });
    if (!text) return leave_out(file, text.error());
    if (is_nested_deeper(*text))
      return leave_out(file, "expected brackets nested at most " + std::to_string(kMostJsonDepth) + " deep");
    ++dumps_.dumps;
    const auto outcome = each_dump_entry(
        *text, [&](const std::string& key, const nlohmann::json& entry) { add(file, key, entry); });
    if (!outcome.is_object)
      leave_out(file, "expected a JSON object with an object for each alert");
    else if (!outcome.is_whole)
      leave_out(file, "no whole JSON object; its first alerts are used. Is the job still writing it?");
  }

  AnomalyDumps take() {
    dumps_.first = first_of(std::move(dumps_.first), request_.count);
    if (left_out_ > kMessages)
      dumps_.left_out.push_back("and " + std::to_string(left_out_ - kMessages) +
                                " more alerts or files are left out");
    return std::move(dumps_);
  }

 private:
  void add(const fs::path& file, const std::string& key, const nlohmann::json& entry) {
    auto anomaly = read_anomaly(key, entry);
    if (!anomaly) return leave_out(file, key + ": " + anomaly.error());
    if (!is_asked(*anomaly)) return;
    ++dumps_.anomalies;
    dumps_.first.push_back(std::move(*anomaly));
    if (dumps_.first.size() > request_.count + kMostUnsorted)
      dumps_.first = first_of(std::move(dumps_.first), request_.count);
  }
  bool is_asked(const Anomaly& anomaly) const {
    const auto& steps = request_.steps;
    return steps.empty() || std::find(steps.begin(), steps.end(), anomaly.step) != steps.end();
  }
  void leave_out(const fs::path& file, const std::string& why) {
    if (++left_out_ <= kMessages) dumps_.left_out.push_back(file.string() + ": " + why + "; left out");
  }

  const AnomalyRequest& request_;
  AnomalyDumps dumps_;
  std::size_t left_out_ = 0;
};

}  // namespace

tl::expected<AnomalyDumps, std::string> read_anomaly_dumps(const fs::path& directory,
                                                           const AnomalyRequest& request) {
  std::error_code error;
  std::vector<std::pair<std::size_t, fs::path>> files;  // "rank2" before "rank10"
  fs::directory_iterator entry(directory, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const fs::path file = entry->path() / "anomaly.json";
    std::error_code missing;
    if (fs::exists(file, missing)) files.emplace_back(entry->path().filename().string().size(), file);
  }
  constexpr const char* kExpected =
      "; expected the directory anomaly_detected of a job, with rank0/anomaly.json";
  if (error) return tl::unexpected(directory.string() + ": " + error.message() + kExpected);
  if (files.empty())
    return tl::unexpected(directory.string() + ": no dump of alerts in it" + kExpected +
                          ", which alerts write with \"dump\": true in the config's \"alert\"; without it, " +
                          "gradmonctl alerts " + directory.string() + " lists them");
  std::sort(files.begin(), files.end());
  DumpReader reader(request);
  for (const auto& [length, file] : files) reader.read(file);
  return reader.take();
}

}  // namespace gradmon
