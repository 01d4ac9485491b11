// SPDX-License-Identifier: Apache-2.0
// The training runs in recorded/: record.py made the files, and says what went wrong in each run.
#pragma once

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/writers/sample_records.h"
#include "writers/queue/name_table.h"
#include "writers/queue/record.h"

namespace gradmon {

class RecordedRun {
 public:
  explicit RecordedRun(const std::string& name) : file_(std::string(GRADMON_RECORDED "/") + name + ".csv") {
    std::string line;
    std::getline(file_, line);
    std::istringstream titles(line);
    std::string title;
    std::getline(titles, title, ',');  // "step"
    while (std::getline(titles, title, ',')) targets_.push_back(names_.intern(title));
  }

  const NameTable& names() const { return names_; }
  std::int64_t step() const { return step_; }

  // The records of the next step: the loss as a training scalar, the norms of reduced gradients. Empty: the
  // run has ended.
  std::vector<Record> next_step() {
    std::vector<Record> records;
    std::string line;
    if (!std::getline(file_, line)) return records;
    std::istringstream cells(line);
    std::string cell;
    std::getline(cells, cell, ',');
    step_ = std::stoll(cell);
    for (const std::uint32_t target : targets_) {
      std::getline(cells, cell, ',');
      Record record = plain_record(step_, target);
      record.target = target;
      record.values[static_cast<std::size_t>(Op::norm)] = std::stod(cell);
      records.push_back(record);
    }
    Record loss = records.front();
    loss.kind = Kind::scalar;
    loss.mask = bit_of(Column::value);
    loss.values[static_cast<std::size_t>(Column::value)] = loss.values[static_cast<std::size_t>(Op::norm)];
    records.erase(records.begin());
    records.push_back(loss);
    return records;
  }

 private:
  std::ifstream file_;
  NameTable names_;
  std::vector<std::uint32_t> targets_;  // the loss first
  std::int64_t step_ = -1;
};

}  // namespace gradmon
