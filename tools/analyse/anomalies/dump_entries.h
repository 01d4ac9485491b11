// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

namespace gradmon {

struct DumpOutcome {
  bool is_object = false;  // the text begins as one
  bool is_whole = false;   // and is JSON to its end
};

// Calls `take` with key and value of each member of a JSON object as soon as it is parsed: a dump may be
// large, and torn. Holds one value. Takes time in proportion to the text, unlike a callback of nlohmann's
// parser, which looks through all values beside each object.
DumpOutcome each_dump_entry(const std::string& text,
                            const std::function<void(const std::string&, const nlohmann::json&)>& take);

}  // namespace gradmon
