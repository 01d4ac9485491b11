// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/anomalies/dump_entries.h"

#include <cstddef>
#include <utility>
#include <vector>

namespace gradmon {
namespace {

using Value = nlohmann::json;

// Builds one member of the outermost object at a time. Members return true: go on.
class EntryBuilder : public nlohmann::json_sax<Value> {
 public:
  using Take = std::function<void(const std::string&, const Value&)>;
  explicit EntryBuilder(const Take& take) : take_(take) {}

  bool in_object() const { return in_object_; }

  bool null() override { return scalar(nullptr); }
  bool boolean(bool value) override { return scalar(value); }
  bool number_integer(number_integer_t value) override { return scalar(value); }
  bool number_unsigned(number_unsigned_t value) override { return scalar(value); }
  bool number_float(number_float_t value, const string_t& /*text*/) override { return scalar(value); }
  bool string(string_t& value) override { return scalar(std::move(value)); }
  bool binary(binary_t& /*value*/) override { return false; }  // not in JSON
  bool start_object(std::size_t /*size*/) override { return begin(Value::object()); }
  bool start_array(std::size_t /*size*/) override { return begin(Value::array()); }
  bool end_object() override { return end(); }
  bool end_array() override { return end(); }
  bool key(string_t& name) override {
    (open_.empty() ? entry_key_ : member_) = std::move(name);
    return true;
  }
  bool parse_error(std::size_t /*place*/, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    return false;
  }

 private:
  bool begin(Value empty) {
    if (!in_object_) return in_object_ = empty.is_object();
    open_.push_back(&add(std::move(empty)));
    return true;
  }
  bool end() {
    if (open_.empty()) return true;  // of the outermost object
    open_.pop_back();
    if (open_.empty()) take_(entry_key_, entry_);
    return true;
  }
  bool scalar(Value value) {
    if (!in_object_) return false;
    add(std::move(value));
    if (open_.empty()) take_(entry_key_, entry_);
    return true;
  }
  Value& add(Value value) {
    if (open_.empty()) return entry_ = std::move(value);
    Value& parent = *open_.back();
    if (!parent.is_array()) return parent[member_] = std::move(value);
    parent.push_back(std::move(value));
    return parent.back();
  }

  const Take& take_;
  bool in_object_ = false;
  std::string entry_key_;
  Value entry_;
  std::string member_;        // key of the next value in the last of open_
  std::vector<Value*> open_;  // objects and arrays in entry_, from the outermost on
};

}  // namespace

DumpOutcome each_dump_entry(const std::string& text,
                            const std::function<void(const std::string&, const Value&)>& take) {
  EntryBuilder builder(take);
  const bool whole = Value::sax_parse(text, &builder);
  return {builder.in_object(), whole};
}

}  // namespace gradmon
