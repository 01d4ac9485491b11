// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/commands/config_text.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "control/config/config_parser.h"
#include "control/config/config_schema.h"
#include "control/config/json_text.h"
#include "control/files/descriptor.h"
#include "control/files/file_access.h"
#include "control/hub/transport/command_client.h"
#include "tools/gradmonctl/cli/printable.h"

namespace gradmon {
namespace {}  // namespace

Result<std::string> read_config_text(const std::string& file) {
  const Descriptor opened(open(file.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  if (opened.valid() && read_rest(opened.get(), kMaxJsonBytes, text)) return text;
  const int cause = errno;
  const std::string denial = cause == EACCES ? access_denial(file, Access::read) : "";
  return tl::make_unexpected(denial.empty() ? file + ": " + std::strerror(cause) : denial);
}

int report_config_problems(const std::string& text, const std::string& file, const Console& console) {
  const auto parsed = parse_config(text, file);
  if (!parsed) {
    for (const ConfigError& error : parsed.error()) console.err << printable(to_string(error)) << '\n';
    return kExitInvalidConfig;
  }
  for (const ConfigWarning& warning : parsed->warnings) {
    console.err << "warning: " << printable(to_string(warning)) << '\n';
  }
  return kExitDone;
}

int make_config_file(const std::string& file, const std::string& text, Existing existing,
                     const Console& console) {
  const auto failed = [&](int cause) { return report_error(file + ": " + std::strerror(cause), console); };
  const int how = existing == Existing::keep ? O_EXCL : O_TRUNC;
  const int fd = open(file.c_str(), O_WRONLY | O_CREAT | how | O_CLOEXEC, 0640);
  if (fd < 0) return failed(errno);
  int cause = write_all(fd, text) ? 0 : errno;
  if (close(fd) != 0 && cause == 0) cause = errno;
  if (cause == 0) return kExitDone;
  if (existing == Existing::keep) unlink(file.c_str());
  return failed(cause);
}

tl::expected<std::string, int> valid_config_text(const std::string& file, const Console& console) {
  auto text = read_config_text(file);
  if (!text) return tl::make_unexpected(report_error(text.error(), console));
  if (const int code = report_config_problems(*text, file, console); code != kExitDone)
    return tl::make_unexpected(code);
  return std::move(*text);
}

namespace {

using Lines = std::vector<std::string_view>;
constexpr std::size_t kMaxCells = 4'000'000;  // of the table; shows larger inputs as one run

Lines split_lines(std::string_view text) {
  Lines lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
    lines.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return lines;
}

void add_line(std::string& to, const char* mark, std::string_view line) {
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.remove_suffix(1);
  to += mark + printable(line) + '\n';
}

}  // namespace

std::string line_diff(std::string_view before, std::string_view after) {
  const Lines olds = split_lines(before);
  const Lines news = split_lines(after);
  std::size_t from = 0;
  std::size_t old_end = olds.size();
  std::size_t new_end = news.size();
  while (from < std::min(old_end, new_end) && olds[from] == news[from]) ++from;
  for (; std::min(old_end, new_end) > from && olds[old_end - 1] == news[new_end - 1]; --new_end) --old_end;
  // at(i, j): the length of the longest common subsequence of the old lines from i and the new lines from j.
  const std::size_t width = new_end - from + 1;
  const std::size_t cells = (old_end - from + 1) * width;
  std::vector<unsigned> lengths(cells <= kMaxCells ? cells : 0);
  const auto at = [&](std::size_t i, std::size_t j) -> unsigned& {
    return lengths[(i - from) * width + j - from];
  };
  for (std::size_t i = old_end; !lengths.empty() && i-- > from;) {
    for (std::size_t j = new_end; j-- > from;)
      at(i, j) = olds[i] == news[j] ? at(i + 1, j + 1) + 1 : std::max(at(i + 1, j), at(i, j + 1));
  }
  std::string text, removed, added;
  std::size_t line = 0;  // first line of the current run
  const auto end_run = [&] {
    if (!removed.empty() || !added.empty()) text += "line " + std::to_string(line) + ":\n" + removed + added;
    removed.clear();
    added.clear();
  };
  for (std::size_t i = from, j = from; i < old_end || j < new_end;) {
    const bool both = i < old_end && j < new_end;
    if (both && !lengths.empty() && olds[i] == news[j]) {
      end_run();
      ++i;
      ++j;
      continue;
    }
    if (removed.empty() && added.empty()) line = i + 1;
    const bool drop = i < old_end && (!both || lengths.empty() || at(i + 1, j) >= at(i, j + 1));
    drop ? add_line(removed, "- ", olds[i++]) : add_line(added, "+ ", news[j++]);
  }
  end_run();
  return text;
}

Result<std::pair<std::string, std::string>> parse_set_argument(const std::string& argument) {
  const std::size_t equals = argument.find('=');
  if (equals == std::string::npos || equals == 0) {
    return tl::make_unexpected("\"" + argument + "\" is not KEY=VALUE");
  }
  const std::string key = argument.substr(0, equals);
  const std::string value = argument.substr(equals + 1);
  if (key.front() != '/' && key.find('.') != std::string::npos) {
    std::string pointer = "/" + key;
    std::replace(pointer.begin(), pointer.end(), '.', '/');
    return tl::make_unexpected("no key has a dot: \"" + key + "\"; a key within another is written " +
                               pointer);
  }
  if (nlohmann::json::accept(value)) return std::make_pair(key, value);
  try {
    return std::make_pair(key, nlohmann::json(value).dump());
  } catch (const nlohmann::json::exception&) {
    return tl::make_unexpected("the value of " + key + " is not UTF-8");
  }
}

Argument edit_words(std::vector<std::string>& words, const std::string& help) {
  return {"EDIT", &words, help, "KEY=VALUE"};
}

std::string parse_edits(const std::vector<std::string>& words,
                        std::vector<std::pair<std::string, std::string>>& edits) {
  for (const std::string& word : words) {
    auto edit = parse_set_argument(word);
    if (!edit) return edit.error();
    edits.push_back(std::move(*edit));
  }
  return "";
}

namespace {

using Json = nlohmann::ordered_json;

// The nearest key to `name` in the object at `pointer`, among the keys of the schema and of the text. "" if
// all are too far.
std::string near_key(std::string_view text, const std::string& pointer, const Json& schema,
                     const std::string& name) {
  std::vector<std::string> names;
  if (schema.contains("properties")) {
    for (const auto& property : schema["properties"].items()) names.push_back(property.key());
  }
  const Json there = Json::parse(value_at(text, pointer).value_or("null"), nullptr, false);
  if (there.is_object()) {
    for (const auto& member : there.items()) names.push_back(member.key());
  }
  return std::string(nearest(name, {names.begin(), names.end()}));
}

}  // namespace

Result<std::string> config_value(std::string_view text, const std::string& key) {
  const std::string pointer = to_pointer(key);
  if (const auto value = value_at(text, pointer)) return std::string(*value);
  const auto parts = split_pointer(pointer);
  if (!parts || parts->empty()) return tl::make_unexpected("\"" + key + "\" is not a key or JSON pointer");
  Json schema = Json::parse(config_json_schema());
  std::string above;
  for (const std::string& part : *parts) {
    const Json properties = schema.value("properties", Json::object());
    if (!properties.contains(part)) {
      const std::string near = near_key(text, above, schema, part);
      return tl::make_unexpected("unknown key \"" + part + "\"" + (above.empty() ? "" : " in " + above) +
                                 (near.empty() ? "" : " (did you mean \"" + near + "\"?)"));
    }
    schema = properties[part];
    above += to_pointer(part);
  }
  return schema.value("default", Json(nullptr)).dump();
}

}  // namespace gradmon
