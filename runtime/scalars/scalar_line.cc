// SPDX-License-Identifier: Apache-2.0
#include "runtime/scalars/scalar_line.h"

#include "writers/sinks/number_format.h"

namespace gradmon {
namespace {

constexpr int kDigits = 6;

}  // namespace

std::string scalar_line(Rank rank, int world_size, Step step, std::int64_t samples,
                        const std::vector<NamedScalar>& scalars) {
  std::string line;
  if (world_size > 1) line += "rank " + std::to_string(rank.value) + ": ";
  line += "step " + std::to_string(step.value);
  if (samples > 0) line += ", " + std::to_string(samples) + " samples";
  const char* separator = ": ";
  for (const NamedScalar& scalar : scalars) {
    line += separator;
    for (const char c : scalar.name) line += static_cast<unsigned char>(c) < ' ' || c == '\x7f' ? '?' : c;
    line += ' ';
    append_number(line, scalar.value, kDigits);
    separator = ", ";
  }
  return line;
}

}  // namespace gradmon
