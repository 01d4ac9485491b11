// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <random>
#include <string>

namespace gradmon {

// Text of a CSV file of activations, broken in another way for each number; `good` has a row of fc1.
inline std::string broken_text(int number, const std::string& good, std::mt19937& random) {
  const auto below = [&](std::size_t count) { return static_cast<std::size_t>(random()) % count; };
  std::string text = good;
  text.replace(text.find("fc1"), 3, "fc" + std::to_string(number));
  switch (number % 12) {
    case 0:  // truncated
      return text.substr(0, below(text.size() + 1));
    case 1:
      return text.substr(below(text.size()));
    case 2:  // changed bytes
      for (int i = 0; i < 8; ++i) text[below(text.size())] = static_cast<char>(random());
      return text;
    case 3:  // binary
      for (char& c : text) c = static_cast<char>(random());
      return text;
    case 4:  // empty
      return std::string();
    case 5:  // joined, with another header
      return text + "name,step,max\nx,1,2\n" + text;
    case 6:
      return text.insert(below(text.size()), "\"");
    case 7:
      return text.insert(below(text.size()), std::string(below(70'000), number % 24 == 7 ? '\0' : ','));
    case 8:
      return "name,step,norm\n" + std::string(below(2'000'000), 'n');
    case 9:  // numbers at their limits
      return text + "0,x,9223372036854775807,2147483647,1e308,0,,\n0,y,9223372036854775808,0,1,0,,\n" +
             "2147483647,z,9223372036854775807,0,1e999,-1e-320,,\n-1,w,-1,-1,1,1,,\n";
    case 10:  // names that would be commands of a shell, of SQL and of a terminal
      return text + "0,x'); DROP TABLE global_stats; --,1,0,2,0,,\n0,../../etc/passwd,1,0,2,0,,\n" +
             "0,\x1b[2J\xff\xfe,1,0,2,0,,\n0,,1,0,2,0,\"" + std::string(3000, '[') + "\",x\n";
    default:  // columns that the kind does not have
      return "vpp_stage,name,step,entropy,mg_direction,samples,value,norm\n0,a,4,1,2,3,4,5\n";
  }
}

}  // namespace gradmon
