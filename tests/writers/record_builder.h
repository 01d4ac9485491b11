// SPDX-License-Identifier: Apache-2.0
// Builds one record of step 4, value by value. For tests of how a sink writes a row.
#pragma once

#include <memory>

#include "writers/queue/name_table.h"
#include "writers/queue/record.h"

namespace gradmon {

// `Builder`: the class that derives from it.
template <class Builder>
class RecordBuilder {
 public:
  explicit RecordBuilder(Kind kind) {
    record_.kind = kind;
    record_.step = 4;
  }

  Builder& name(const char* text, int vpp_stage = 0) {
    record_.target = names_->intern(text, vpp_stage);
    return builder();
  }
  Builder& step(std::int64_t value) {
    record_.step = value;
    return builder();
  }
  Builder& micro_step(int value) {
    record_.micro_step = value;
    return builder();
  }
  Builder& tensor(const char* shape, DType dtype) {
    record_.shape = names_->intern(shape);
    record_.dtype = dtype;
    return builder();
  }
  // `Which`: Op or Column.
  template <typename Which>
  Builder& value(Which which, double value) {
    record_.values[static_cast<std::size_t>(which)] = value;
    record_.mask = static_cast<ValueMask>(record_.mask | bit_of(which));
    return builder();
  }

 protected:
  const std::shared_ptr<NameTable> names_ = std::make_shared<NameTable>();
  Record record_;

 private:
  Builder& builder() { return static_cast<Builder&>(*this); }
};

}  // namespace gradmon
