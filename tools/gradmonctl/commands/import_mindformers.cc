// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/commands/import_mindformers.h"

#include <yaml-cpp/depthguard.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "control/config/config_parser.h"
#include "control/config/json_locate.h"
#include "control/text/utf8.h"

namespace gradmon {
namespace {

constexpr std::size_t kMaxElements = 4096;

struct Refused {
  YamlError error;
};

YamlPlace place_of(const std::string& key, const YAML::Mark& mark) {
  if (mark.is_null()) return {key, 1, 1};
  return {key, static_cast<std::size_t>(mark.line) + 1, static_cast<std::size_t>(mark.column) + 1};
}

[[noreturn]] void refuse(const std::string& key, const YAML::Node& at, const std::string& text) {
  throw Refused{{place_of(key, at.Mark()), text}};
}

void refuse_other_encodings(const std::string& text) {
  std::size_t line = 0;
  std::size_t column = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_character(text, at).bytes;
    if (length == 0) throw Refused{{{"", line + 1, column + 1}, "not valid UTF-8"}};
    const bool ends_line = text[at] == '\n';
    line += ends_line ? 1 : 0;
    column = ends_line ? 0 : column + 1;
    at += length;
  }
}

nlohmann::json scalar_of(const YAML::Node& node) {
  if (node.IsNull()) return nullptr;
  if (node.Tag() == "!") return node.Scalar();  // quoted
  bool truth = false;
  if (YAML::convert<bool>::decode(node, truth)) return truth;
  std::int64_t integer = 0;
  if (YAML::convert<std::int64_t>::decode(node, integer)) return integer;
  double number = 0;
  if (YAML::convert<double>::decode(node, number)) return number;
  return node.Scalar();
}

class Reader {
 public:
  explicit Reader(const std::vector<std::string>& sections) : sections_(sections) {}

  std::vector<YamlEntry> read(const std::string& text) {
    refuse_other_encodings(text);
    const std::vector<YAML::Node> documents = YAML::LoadAll(text);
    if (documents.size() > 1) refuse("", documents[1], "more than one YAML document");
    const YAML::Node document = documents.empty() ? YAML::Node() : documents.front();
    if (!document.IsMap()) refuse("", document, "expected a mapping of keys to values");
    std::set<std::string> seen;
    for (const auto& item : document) {
      const std::string key = key_of("", item.first, seen);
      if (std::find(sections_.begin(), sections_.end(), key) != sections_.end())
        add_section(key, item.second);
    }
    return std::move(entries_);
  }

 private:
  static std::string key_of(const std::string& within, const YAML::Node& key, std::set<std::string>& seen) {
    if (!key.IsScalar()) refuse(within, key, "expected a key that is text");
    const std::string whole = within + key.Scalar();
    if (key.Scalar() == "<<" && key.Tag() != "!")
      refuse(whole, key, "merge keys are not supported; write the merged keys out");
    if (!seen.insert(whole).second) refuse(whole, key, "duplicate key");
    return whole;
  }

  void add_section(const std::string& key, const YAML::Node& section) {
    if (section.IsNull()) return;
    if (section.IsMap()) return add_keys(key + ".", section);
    if (!section.IsSequence()) refuse(key, section, "expected a mapping, or a list of mappings");
    for (std::size_t i = 0; i < section.size(); ++i) {
      const std::string element = key + "[" + std::to_string(i) + "]";
      if (!section[i].IsMap()) refuse(element, section[i], "expected a mapping");
      add_keys(element + ".", section[i]);
    }
  }

  void add_keys(const std::string& within, const YAML::Node& mapping) {
    std::set<std::string> seen;
    for (const auto& item : mapping) {
      const std::string key = key_of(within, item.first, seen);
      entries_.push_back({place_of(key, item.first.Mark()), value_of(key, item.second)});
      count(key, item.first);
    }
  }

  nlohmann::json value_of(const std::string& key, const YAML::Node& node) {
    if (node.IsMap()) return nlohmann::json::object();
    if (!node.IsSequence()) return scalar_of(node);
    nlohmann::json list = nlohmann::json::array();
    for (const YAML::Node& element : node) {
      list.push_back(element.IsScalar() || element.IsNull() ? scalar_of(element) : nlohmann::json::object());
      count(key, element);
    }
    return list;
  }

  void count(const std::string& key, const YAML::Node& at) {
    if (++counted_ > kMaxElements)
      refuse(key, at, "more than " + std::to_string(kMaxElements) + " keys and elements");
  }

  const std::vector<std::string>& sections_;
  std::vector<YamlEntry> entries_;
  std::size_t counted_ = 0;
};

}  // namespace

tl::expected<std::vector<YamlEntry>, YamlError> read_yaml_sections(const std::string& text,
                                                                   const std::vector<std::string>& sections) {
  try {
    return Reader(sections).read(text);
  } catch (const Refused& refused) {
    return tl::make_unexpected(refused.error);
  } catch (const YAML::DeepRecursion& error) {
    return tl::make_unexpected(YamlError{place_of("", error.mark), "nested too deeply"});
  } catch (const YAML::Exception& error) {
    return tl::make_unexpected(YamlError{place_of("", error.mark), "not YAML: " + error.msg});
  }
}

namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::string_view kMonitor = "monitor_config.";
constexpr std::string_view kTensorboard = "tensorboard.";
constexpr std::string_view kCallbacks = "callbacks[";

struct Family {
  std::string_view key;  // without its section
  std::vector<std::string> scalars;
};

const std::vector<Family>& formats() {
  static const std::vector<Family> table = {
      {"local_loss_format", {"local_loss"}},
      {"device_local_loss_format", {"device_local_loss"}},
      {"local_norm_format", {"local_norm"}},
      {"device_local_norm_format", {"device_local_norm"}},
      {"optimizer_state_format", {"adam_m_norm", "adam_v_norm"}},
      {"weight_state_format", {"weight_norm"}},
  };
  return table;
}

const std::vector<Family>& switches() {
  static const std::vector<Family> table = {
      {"log_loss_scale_to_tensorboard", {"loss-scale"}},
      {"log_timers_to_tensorboard", {"iteration-time", "throughput", "B-samples-per-day"}},
      {"log_expert_load_to_tensorboard", {"expert_load"}},
  };
  return table;
}

const std::vector<std::string> kLossMonitor = {"learning-rate", "batch-size", "loss", "grad-norm",
                                               "model-flops-throughput-per-device"};

const Family* find(const std::vector<Family>& table, std::string_view key) {
  const auto found =
      std::find_if(table.begin(), table.end(), [key](const Family& family) { return family.key == key; });
  return found == table.end() ? nullptr : &*found;
}

bool starts_with(std::string_view text, std::string_view with) { return text.substr(0, with.size()) == with; }

// Scalars known only to the program, grouped by the Monitor call that reports them.
const std::vector<std::string> kByScalar = {
    "loss",          "local_loss", "device_local_loss",
    "learning-rate", "loss-scale", "model-flops-throughput-per-device"};
const std::vector<std::string> kBySamples = {"batch-size", "throughput", "throughput_linearity",
                                             "B-samples-per-day"};
const std::vector<std::string> kByExpertLoad = {"expert_load"};

// The `names` in `told`, as "; needs monitor.scalar for loss, local_loss"; "" without any.
std::string required_calls(const std::string& call, const std::vector<std::string>& told,
                           const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) {
    if (std::find(told.begin(), told.end(), name) == told.end()) continue;
    text += (text.empty() ? "; needs monitor." + call + " for " : ", ") + name;
  }
  return text;
}

class Importer {
 public:
  explicit Importer(std::vector<YamlEntry> entries) : entries_(std::move(entries)) {
    for (const YamlEntry& entry : entries_) {
      values_[entry.place.key] = &entry.value;
      has_tensorboard_ = has_tensorboard_ || starts_with(entry.place.key, kTensorboard);
    }
    monitor_on_ = value_at("monitor_config.monitor_on") == json(true);
    const json interval = value_at("monitor_config.step_interval");
    monitor_sets_interval_ = monitor_on_ && !interval.is_null();
  }

  tl::expected<Imported, std::vector<YamlError>> import() {
    Imported imported;
    for (const YamlEntry& entry : entries_) {
      entry_ = &entry;
      imported.keys.push_back({entry.place, entry.value.dump(-1, ' ', false, json::error_handler_t::replace),
                               translate(entry.place.key, entry.value)});
    }
    if (!errors_.empty()) return tl::make_unexpected(std::move(errors_));
    imported.config = config();
    return imported;
  }

 private:
  json value_at(const std::string& key) const {
    const auto found = values_.find(key);
    return found == values_.end() ? json() : *found->second;
  }

  std::string translate(const std::string& key, const json& value) {
    if (starts_with(key, kMonitor)) return monitor(key.substr(kMonitor.size()), value);
    if (starts_with(key, kTensorboard)) return tensorboard(key.substr(kTensorboard.size()), value);
    if (starts_with(key, kCallbacks)) return callback(key, value);
    return unknown();
  }

  std::string monitor(const std::string& key, const json& value) {
    if (key == "monitor_on") {
      if (!value.is_boolean() && !value.is_null()) return add_error("true or false");
      return monitor_on_ ? "dynamic_on: true" : "nothing: without monitor_on the other keys have no effect";
    }
    if (!monitor_on_) return "nothing: monitor_on is not true";
    if (const Family* family = find(formats(), key)) return format(*family, value);
    if (key == "dump_path") return "nothing: output goes to the directory MONITOR_OUTPUT_DIR names";
    if (key == "target") return target(value);
    if (key == "invert") return boolean_key("invert", value);
    if (key == "step_interval") return interval(value);
    if (key == "throughput_baseline") return baseline(value);
    if (key == "print_struct") return boolean_key("print_struct", value);
    return unknown();
  }

  std::string format(const Family& family, const json& value) {
    bool log = false;
    bool records = false;
    const json list = value.is_string() ? json::array({value}) : value.is_null() ? json::array() : value;
    bool good = list.is_array();
    for (const json& one : good ? list : json::array()) {
      log = log || one == "log";
      records = records || one == "tensorboard";
      good = good && (one == "log" || one == "tensorboard");
    }
    if (!good) return add_error("'log', 'tensorboard', a list of these, or null");
    if (!log && !records) return "nothing: not asked for";
    return add_scalars(family.scalars, log || !has_tensorboard_, records && has_tensorboard_);
  }

  std::string target(const json& value) {
    if (value.is_null()) return "nothing: every parameter is watched";
    const json list = value.is_string() ? json::array({value}) : value;
    const auto parsed =
        parse_config(json{{"target_regex", list}}.dump(-1, ' ', false, json::error_handler_t::replace), "");
    if (!parsed) return add_error(parsed.error().front().expected);
    config_["target_regex"] = list;
    return "target_regex: " + config_["target_regex"].dump();
  }

  std::string boolean_key(const char* key, const json& value) {
    if (value.is_null()) return "nothing: false by default";
    if (!value.is_boolean()) return add_error("true or false");
    config_[key] = value;
    return std::string(key) + ": " + value.dump();
  }

  std::string interval(const json& value) {
    if (value.is_null()) return "nothing: every step by default";
    if (!value.is_number_integer() || value < 1) return add_error("an integer >= 1");
    config_["step_interval"] = value;
    return "step_interval: " + value.dump();
  }

  std::string baseline(const json& value) {
    if (value.is_null()) return "nothing: not asked for";
    if (!value.is_number() || !(value > 0) || !std::isfinite(value.get<double>()))
      return add_error("a number > 0");
    config_["throughput_baseline"] = value;
    return "throughput_baseline: " + value.dump() + ", " +
           add_scalars({"throughput_linearity"}, true, has_tensorboard_);
  }

  std::string tensorboard(const std::string& key, const json& value) {
    if (const Family* family = find(switches(), key)) {
      if (!value.is_boolean() && !value.is_null()) return add_error("true or false");
      return value == json(true) ? add_scalars(family->scalars, false, true) : "nothing: not asked for";
    }
    if (key == "tensorboard_dir") {
      if (value.is_null()) return "nothing: not asked for";
      config_["format"] = {"csv", "tensorboard"};
      return "format: [\"csv\",\"tensorboard\"], in tensorboard/ of each rank's run directory";
    }
    if (key == "tensorboard_queue_size") return "nothing: output is readable after every step";
    return unknown();
  }

  std::string callback(const std::string& key, const json& value) {
    const std::size_t dot = key.find('.');
    const std::string name = key.substr(dot + 1);
    const json type = value_at(key.substr(0, dot) + ".type");
    if (name == "type") return callback_of(type);
    if (type == "MFLossMonitor" && name == "per_print_times") {
      if (!monitor_sets_interval_) return interval(value);
      return "nothing: monitor_config.step_interval applies to all";
    }
    return "nothing: no monitoring";
  }

  std::string callback_of(const json& type) {
    if (type == "MFLossMonitor") return add_scalars(kLossMonitor, true, has_tensorboard_);
    if (type == "TrainingStateMonitor") return "nothing of its own: it does what monitor_config says";
    if (type == "TopkBiasBalanceCallback")
      return "nothing: training balances the load itself; its metric is expert_load";
    return "nothing: no monitoring";
  }

  std::string add_scalars(const std::vector<std::string>& names, bool log, bool records) {
    std::string text = "scalars: ";
    json where = log && records ? json::array({"log", "records"}) : json(log ? "log" : "records");
    for (const std::string& name : names) {
      scalars_[name] = where;
      text += (&name == &names.front() ? "" : ", ") + name;
    }
    text += " to " + std::string(log && records ? "log and records" : log ? "log" : "records");
    return text + required_calls("scalar", kByScalar, names) + required_calls("samples", kBySamples, names) +
           required_calls("expert_load", kByExpertLoad, names);
  }

  std::string add_error(const std::string& expected) {
    errors_.push_back({entry_->place, "found " +
                                          entry_->value.dump(-1, ' ', false, json::error_handler_t::replace) +
                                          ", expected " + expected});
    return "";
  }

  static std::string unknown() { return "nothing: not known here"; }

  std::string config() {
    ordered_json made;
    made["dynamic_on"] = monitor_on_ || !scalars_.empty();
    for (const char* key :
         {"step_interval", "target_regex", "invert", "print_struct", "throughput_baseline", "format"}) {
      if (config_.contains(key)) made[key] = config_[key];
    }
    if (!scalars_.empty()) made["scalars"] = scalars_;
    return made.dump(2) + "\n";
  }

  // Constant after construction.
  const std::vector<YamlEntry> entries_;
  std::map<std::string, const json*> values_;
  bool has_tensorboard_ = false;
  bool monitor_on_ = false;
  bool monitor_sets_interval_ = false;

  const YamlEntry* entry_ = nullptr;  // being translated
  json config_ = json::object();
  ordered_json scalars_ = ordered_json::object();
  std::vector<YamlError> errors_;
};

}  // namespace

tl::expected<Imported, std::vector<YamlError>> import_mindformers(const std::string& yaml) {
  auto entries = read_yaml_sections(yaml, {"monitor_config", "tensorboard", "callbacks"});
  if (!entries) return tl::make_unexpected(std::vector<YamlError>{std::move(entries.error())});
  return Importer(std::move(*entries)).import();
}

}  // namespace gradmon
