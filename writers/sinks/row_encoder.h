// SPDX-License-Identifier: Apache-2.0
// Turns rows and histograms into records of an event file. It formats nothing per row: the texts of a tag are
// made once per target and once per column. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "control/step.h"
#include "control/vocabulary.h"
#include "writers/queue/name_table.h"
#include "writers/queue/record.h"
#include "writers/queue/sink.h"

namespace gradmon {

// The names of the curves in TensorBoard (FORMAT.md): "actv_norm/fc1.input:micro3", and in msprobe's form
// "0:fc1.input:3/rank2/actv_norm". Pure.

// The target's part of a tag in msprobe's form: "0:fc1.input". Malformed UTF-8 becomes U+FFFD. A training
// scalar's whole tag is the part after the colon.
std::string tag_of_target(int vpp_stage, std::string_view name);
// The target's part of a tag in gradmon's form, from msprobe's form: "fc1.input". A stage other than 0 stays,
// and so does 0 before a name that begins like a stage.
std::string_view without_first_stage(std::string_view target);

// The part of a tag that names the kind and the column ("norm"): the first part in gradmon's form,
// "actv_norm/", the last part in msprobe's, "/rank2/actv_norm".
std::string column_in_tag(Kind kind, std::string_view column, const Layout& layout, Rank rank);

// A histogram's tag: "update/fc1.weight", "0:fc1.weight/rank2/update". `target`: from tag_of_target().
std::string histogram_tag(Kind kind, std::string_view target, TagForm form, Rank rank);

// True if the scalar is also drawn over samples. False for throughput per device or per day.
bool drawn_over_samples(std::string_view scalar);
inline constexpr std::string_view kOverSamples = "-vs-samples";  // follows the tag of the scalar

class RowEncoder {
 public:
  // `names` resolves the ids in the rows.
  RowEncoder(std::shared_ptr<const NameTable> names, Rank rank, const Layout& layout);

  // Appends one event with the row's values in the layout's columns; nothing without such values. A scalar
  // with a number of samples has a second event, whose step is that number. Values are float32. `wall_time`
  // is in seconds since 1970.
  void append(std::string& out, const Record& row, double wall_time);
  // Appends one event with the counts of the bins.
  void append(std::string& out, const Histogram& histogram, double wall_time);

 private:
  // A value of one kind of row.
  struct Curve {
    std::uint8_t value;  // index into Record::values
    std::string column;  // in the tag
  };

  void append_scalar(std::string& out, const Record& row, double wall_time);
  std::string_view target_tag(std::uint32_t id);
  std::string_view micro_step_text(std::int32_t micro_step);

  // Constant after construction.
  const std::shared_ptr<const NameTable> names_;
  const Rank rank_;
  const TagForm form_;
  std::array<std::vector<Curve>, kKinds> curves_;
  std::array<bool, kKinds> has_micro_step_{};

  std::vector<std::string> targets_;  // "0:fc1.input", by id; empty: not needed so far
  std::int32_t micro_step_ = -1;      // of the text
  std::string micro_step_text_;       // ":micro3", or ":3" in msprobe's form
};

}  // namespace gradmon
