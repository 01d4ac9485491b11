// SPDX-License-Identifier: Apache-2.0
#include "writers/sinks/csv/csv_text.h"

namespace gradmon {

std::string csv_header(const std::vector<RowColumn>& columns) {
  std::string header;
  for (const RowColumn& column : columns) header += (header.empty() ? "" : ",") + std::string(column.title);
  return header + '\n';
}

void append_cell(std::string& line, std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) {
    line += text;
    return;
  }
  line += '"';
  for (const char c : text) {
    if (c == '"') line += '"';
    line += c;
  }
  line += '"';
}

}  // namespace gradmon
