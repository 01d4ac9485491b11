// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/rows/csv_reader.h"

#include <algorithm>
#include <cstring>

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using Cells = std::vector<std::string>;
using Found = CsvReader::Found;

// Gives out a text, at most `piece` bytes at a time.
CsvReader::Read pieces_of(const std::string& text, std::size_t piece) {
  return [&text, piece, at = std::size_t{0}](char* into, std::size_t room) mutable {
    const std::size_t size = std::min({piece, room, text.size() - at});
    std::memcpy(into, text.data() + at, size);
    at += size;
    return size;
  };
}

// One line for each row: "LINE: CELL|CELL", "LINE: ! PROBLEM" or "torn".
Cells rows_of(const std::string& text, std::size_t piece = 1'000'000) {
  CsvReader reader(pieces_of(text, piece));
  std::vector<std::string_view> cells;
  Cells rows;
  for (Found found = reader.next(cells); found != Found::end; found = reader.next(cells)) {
    if (found == Found::torn) {
      rows.push_back("torn");
      continue;
    }
    std::string row = std::to_string(reader.line()) + ":";
    if (found == Found::malformed) row += " ! " + reader.problem();
    if (found == Found::row) {
      for (const std::string_view& cell : cells)
        row += (&cell == &cells.front() ? " " : "|") + std::string(cell);
    }
    rows.push_back(row);
  }
  return rows;
}

TEST_CASE("cells are split as by Python's csv module") {
  CHECK(rows_of("a,b,c\n1,,3\n") == Cells{"1: a|b|c", "2: 1||3"});
  CHECK(rows_of("\"[16, 8]\",x\n") == Cells{"1: [16, 8]|x"});
  CHECK(rows_of("\"say \"\"x\"\"\",\"\"\"\"\n") == Cells{"1: say \"x\"|\""});
  CHECK(rows_of("\"\",a\n") == Cells{"1: |a"});
  CHECK(rows_of("\n") == Cells{"1: "});
}

TEST_CASE("a quoted line end belongs to its cell and counts as a line") {
  CHECK(rows_of("\"two\nlines\",1\nnext,2\n") == Cells{"1: two\nlines|1", "3: next|2"});
}

TEST_CASE("a byte order mark and carriage returns are left out") {
  CHECK(rows_of("\xEF\xBB\xBFname,step\r\n\"x\",1\r\n") == Cells{"1: name|step", "2: x|1"});
  CHECK(rows_of("\"x\"\r\n") == Cells{"1: x"});
}

TEST_CASE("the last row of a text that a spreadsheet has saved needs no line end") {
  for (const std::size_t piece : {1u, 1'000'000u}) {
    CHECK(rows_of("a,b\r\n1,2\r\n3,4", piece) == Cells{"1: a|b", "2: 1|2", "3: 3|4"});
    CHECK(rows_of("\xEF\xBB\xBFx,y\n1,\"2\"", piece) == Cells{"1: x|y", "2: 1|2"});
    CHECK(rows_of("a,b\n1,2\r\n3,4", piece) == Cells{"1: a|b", "2: 1|2", "torn"});
    CHECK(rows_of("a,b\r\n\"open", piece) ==
          Cells{"1: a|b", "2: ! a quoted cell does not end; expected a second quote"});
    CHECK(rows_of("\xEF\xBB\xBF", piece).empty());
  }
}

TEST_CASE("a last row without a line end is torn and not given out") {
  CHECK(rows_of("a,b\n1,2") == Cells{"1: a|b", "torn"});
  CHECK(rows_of("a,b\n\"1") == Cells{"1: a|b", "torn"});
  CHECK(rows_of("a,b\n\"1\"") == Cells{"1: a|b", "torn"});
  CHECK(rows_of("").empty());
}

TEST_CASE("a broken quote costs its own line only") {
  const std::string after = "text after a quoted cell; expected a comma or a line end";
  CHECK(rows_of("\"a\"b,1\nx,2\n") == Cells{"1: ! " + after, "2: x|2"});
  CHECK(rows_of("\"open,1\nx,\"[2]\"\nz,3\n") == Cells{"1: ! " + after, "2: x|[2]", "3: z|3"});
  CHECK(rows_of("\"open,1\nx,2\ny,3") ==
        Cells{"1: ! a quoted cell does not end; expected a second quote", "2: x|2", "torn"});
}

TEST_CASE("a row that is too long or has too many cells is left out and the next one is read") {
  const auto same = [](const std::string& text, const Cells& rows) {
    return rows_of(text) == rows;
  };  // not printed
  const std::string longest(CsvReader::kMaxRowBytes + 200'000, 'n');
  CHECK(same("a\n" + longest + ",1\nb\n", {"1: a", "2: ! longer than 1 MiB", "3: b"}));
  CHECK(same("\"" + longest + "\nb\n", {"1: ! longer than 1 MiB", "2: b"}));
  CHECK(same(longest, {"1: ! longer than 1 MiB"}));
  const std::string fits(CsvReader::kMaxRowBytes - 10, 'n');
  CHECK(same(fits + "\nb\n", {"1: " + fits, "2: b"}));
  CHECK(same(std::string(CsvReader::kMaxCells - 1, ',') + "\n",
             {"1: " + std::string(CsvReader::kMaxCells - 1, '|')}));
  CHECK(same(std::string(CsvReader::kMaxCells, ',') + "\nb\n", {"1: ! more than 64 cells", "2: b"}));
}

TEST_CASE("rows do not depend on the pieces in which the text arrives") {
  std::string text = "vpp_stage,name,step\n";
  for (int i = 0; i < 9000; ++i)
    text += "0,\"na\"\"me\n" + std::to_string(i) + "\"," + std::to_string(i) + "\r\n";
  text += "\"broken";
  const Cells whole = rows_of(text);
  CHECK(whole.size() == 9002);
  for (const std::size_t piece : {1u, 2u, 3u, 61u, 65536u}) CHECK((rows_of(text, piece) == whole));
}

}  // namespace
}  // namespace gradmon
