// SPDX-License-Identifier: Apache-2.0
#include "writers/sinks/tensorboard/tags.h"

#include <algorithm>
#include <array>

#include "control/text/utf8.h"
#include "writers/sinks/columns.h"

namespace gradmon {
namespace {

void append_utf8(std::string& out, std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t bytes = utf8_character(text, at).bytes;
    out += bytes == 0 ? std::string_view("\xef\xbf\xbd") : text.substr(at, bytes);
    at += std::max<std::size_t>(bytes, 1);
  }
}

}  // namespace

std::string tag_of_target(int vpp_stage, std::string_view name) {
  std::string tag = std::to_string(vpp_stage) + ":";
  append_utf8(tag, name);
  return tag;
}

std::string_view without_first_stage(std::string_view target) {
  const std::string_view name = target.substr(target.find(':') + 1);
  const std::size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
  const bool like_a_stage = digits > 0 && digits < name.size() && name[digits] == ':';
  return target.rfind("0:", 0) == 0 && !like_a_stage ? name : target;
}

std::string column_in_tag(Kind kind, std::string_view column, const Layout& layout, Rank rank) {
  const std::string name(column);
  if (layout.tags == TagForm::gradmon) return std::string(name_of(kind)) + "_" + name + "/";
  return "/rank" + std::to_string(rank.value) + "/" + task_of(kind, layout) + "_" + name;
}

std::string histogram_tag(Kind kind, std::string_view target, TagForm form, Rank rank) {
  if (form == TagForm::gradmon)
    return std::string(name_of(kind)) + "/" + std::string(without_first_stage(target));
  return std::string(target) + "/rank" + std::to_string(rank.value) + "/" + name_of(kind);
}

bool drawn_over_samples(std::string_view scalar) {
  constexpr std::array<std::string_view, 3> kOverStepsOnly = {
      "throughput_linearity", "model-flops-throughput-per-device", "B-samples-per-day"};
  return std::find(kOverStepsOnly.begin(), kOverStepsOnly.end(), scalar) == kOverStepsOnly.end();
}

}  // namespace gradmon
