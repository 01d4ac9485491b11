// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/config/import_yaml.h"

#include <yaml-cpp/depthguard.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <set>
#include <utility>

#include "control/config/json_token.h"
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

}  // namespace gradmon
