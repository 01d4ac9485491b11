// SPDX-License-Identifier: Apache-2.0
#include "writers/sinks/tensorboard/text_event.h"

#include <algorithm>

#include "writers/sinks/tensorboard/event.pb.h"
#include "writers/sinks/tensorboard/record_framing.h"

namespace gradmon {
namespace {

constexpr int kStringType = 7;  // DT_STRING of TensorFlow's types.proto

}  // namespace

std::string file_version_record(double wall_time) {
  tensorboard::Event event;
  event.set_wall_time(wall_time);
  event.set_file_version("brain.Event:2");
  event.mutable_source_metadata()->set_writer(std::string(kEventWriter));
  return record_of(event.SerializeAsString());
}

std::string text_record(std::string_view tag, std::string_view text, Step step, double wall_time) {
  tensorboard::Event event;
  event.set_wall_time(wall_time);
  event.set_step(step.value);
  tensorboard::Summary::Value& value = *event.mutable_summary()->add_value();
  value.set_tag(std::string(tag));
  value.mutable_metadata()->mutable_plugin_data()->set_plugin_name("text");
  value.mutable_tensor()->set_dtype(kStringType);
  value.mutable_tensor()->mutable_tensor_shape();
  value.mutable_tensor()->add_string_val(std::string(text));
  return record_of(event.SerializeAsString());
}

std::string config_markdown(Revision revision, std::string_view config) {
  std::string text = "Revision " + std::to_string(revision.value) + "\n\n";
  while (!config.empty()) {
    const std::string_view line = config.substr(0, config.find('\n'));
    text += "    ";
    text += line;
    text += '\n';
    config.remove_prefix(std::min(line.size() + 1, config.size()));
  }
  return text;
}

}  // namespace gradmon
