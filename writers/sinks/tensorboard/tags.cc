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

std::string tag_suffix(Kind kind, std::string_view column, const Layout& layout, Rank rank) {
  std::string suffix = "/rank" + std::to_string(rank.value) + "/" + task_of(kind, layout) + "_";
  suffix += column;
  return suffix;
}

std::string histogram_tag_suffix(Kind kind, Rank rank) {
  return "/rank" + std::to_string(rank.value) + "/" + name_of(kind);
}

bool drawn_over_samples(std::string_view scalar) {
  constexpr std::array<std::string_view, 3> kOverStepsOnly = {
      "throughput_linearity", "model-flops-throughput-per-device", "B-samples-per-day"};
  return std::find(kOverStepsOnly.begin(), kOverStepsOnly.end(), scalar) == kOverStepsOnly.end();
}

}  // namespace gradmon
