// SPDX-License-Identifier: Apache-2.0
// The records of an event file that hold no measurement. Pure; made for each file or revision only.
#pragma once

#include <string>
#include <string_view>

#include "control/step.h"

namespace gradmon {

// The first record of every event file.
std::string file_version_record(double wall_time);
inline constexpr std::string_view kEventWriter = "gradmon";  // in that record; older releases name none

// A record that TensorBoard shows as text. The text is Markdown in UTF-8.
std::string text_record(std::string_view tag, std::string_view text, Step step, double wall_time);

// The config of a revision as Markdown: a title, then the config's lines as a block of code.
std::string config_markdown(Revision revision, std::string_view config);

}  // namespace gradmon
