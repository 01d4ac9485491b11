// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/rows/row_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "control/debian_version.h"
#include "tests/support/temporary_directory.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using Lines = std::vector<std::string>;
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
Lines rows_of(const std::string& text, std::size_t piece = 1'000'000) {
  CsvReader reader(pieces_of(text, piece));
  std::vector<std::string_view> cells;
  Lines rows;
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
  CHECK(rows_of("a,b,c\n1,,3\n") == Lines{"1: a|b|c", "2: 1||3"});
  CHECK(rows_of("\"[16, 8]\",x\n") == Lines{"1: [16, 8]|x"});
  CHECK(rows_of("\"say \"\"x\"\"\",\"\"\"\"\n") == Lines{"1: say \"x\"|\""});
  CHECK(rows_of("\"\",a\n") == Lines{"1: |a"});
  CHECK(rows_of("\n") == Lines{"1: "});
}

TEST_CASE("a quoted line end belongs to its cell and counts as a line") {
  CHECK(rows_of("\"two\nlines\",1\nnext,2\n") == Lines{"1: two\nlines|1", "3: next|2"});
}

TEST_CASE("a byte order mark and carriage returns are left out") {
  CHECK(rows_of("\xEF\xBB\xBFname,step\r\n\"x\",1\r\n") == Lines{"1: name|step", "2: x|1"});
  CHECK(rows_of("\"x\"\r\n") == Lines{"1: x"});
}

TEST_CASE("the last row of a text that a spreadsheet has saved needs no line end") {
  for (const std::size_t piece : {1u, 1'000'000u}) {
    CHECK(rows_of("a,b\r\n1,2\r\n3,4", piece) == Lines{"1: a|b", "2: 1|2", "3: 3|4"});
    CHECK(rows_of("\xEF\xBB\xBFx,y\n1,\"2\"", piece) == Lines{"1: x|y", "2: 1|2"});
    CHECK(rows_of("a,b\n1,2\r\n3,4", piece) == Lines{"1: a|b", "2: 1|2", "torn"});
    CHECK(rows_of("a,b\r\n\"open", piece) ==
          Lines{"1: a|b", "2: ! a quoted cell does not end; expected a second quote"});
    CHECK(rows_of("\xEF\xBB\xBF", piece).empty());
  }
}

TEST_CASE("a last row without a line end is torn and not given out") {
  CHECK(rows_of("a,b\n1,2") == Lines{"1: a|b", "torn"});
  CHECK(rows_of("a,b\n\"1") == Lines{"1: a|b", "torn"});
  CHECK(rows_of("a,b\n\"1\"") == Lines{"1: a|b", "torn"});
  CHECK(rows_of("").empty());
}

TEST_CASE("a broken quote costs its own line only") {
  const std::string after = "text after a quoted cell; expected a comma or a line end";
  CHECK(rows_of("\"a\"b,1\nx,2\n") == Lines{"1: ! " + after, "2: x|2"});
  CHECK(rows_of("\"open,1\nx,\"[2]\"\nz,3\n") == Lines{"1: ! " + after, "2: x|[2]", "3: z|3"});
  CHECK(rows_of("\"open,1\nx,2\ny,3") ==
        Lines{"1: ! a quoted cell does not end; expected a second quote", "2: x|2", "torn"});
}

TEST_CASE("a row that is too long or has too many cells is left out and the next one is read") {
  const auto same = [](const std::string& text, const Lines& rows) {
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
  const Lines whole = rows_of(text);
  CHECK(whole.size() == 9002);
  for (const std::size_t piece : {1u, 2u, 3u, 61u, 65536u}) CHECK((rows_of(text, piece) == whole));
}

using Cells = std::vector<std::string_view>;

const Cells kHeader = {"vpp_stage", "name", "step", "micro_step", "norm", "nans", "future", "shape", "dtype"};

tl::expected<void, std::string> read(const Cells& cells, Row& row) {
  std::string name;
  return RowColumns::of_header(kHeader)->read(cells, row, 0, name);
}

std::string error_of(const Cells& cells) {
  Row row;
  const auto done = read(cells, row);
  return done ? "" : done.error();
}

TEST_CASE("a row is read by the titles of its header") {
  Row row;
  REQUIRE(read({"1", "fc1", "7", "2", "-1.5e-05", "3", "?", "[2]", "torch.float32"}, row));
  CHECK(row.vpp_stage == 1);
  CHECK(row.name == "fc1");
  CHECK(row.step == 7);
  CHECK(row.micro_step == 2);
  CHECK(row.values[field_of(Op::norm)] == -1.5e-05);
  CHECK(row.values[field_of(Op::nans)] == 3);
  CHECK(row.mask == ((1U << field_of(Op::norm)) | (1U << field_of(Op::nans))));
  CHECK(row.shape == "[2]");
  CHECK(row.dtype == "torch.float32");
}

TEST_CASE("an empty cell is no value and nan and inf are values") {
  Row row;
  REQUIRE(read({"", "", "7", "0", "nan", "", "", "", ""}, row));
  CHECK(row.has(field_of(Op::norm)));
  CHECK(std::isnan(row.values[field_of(Op::norm)]));
  CHECK(!row.has(field_of(Op::nans)));
  REQUIRE(read({"0", "", "7", "0", "-inf", "0.0", "", "", ""}, row));
  CHECK(row.values[field_of(Op::norm)] < 0);
  CHECK(std::isinf(row.values[field_of(Op::norm)]));
}

TEST_CASE("a row of msprobe for an absent tensor has no values") {
  Row row;
  REQUIRE(read({"0", ".input", "1", "0", "nan", "nan", "nan", "nan", "nan"}, row));
  CHECK(row.mask == 0);
}

TEST_CASE("a row of a module as older releases of msprobe wrote it is one row of each of its parts") {
  for (const char* grad : {"", "_grad"}) {
    const std::string input = "input" + std::string(grad) + ".", output = "output" + std::string(grad) + ".";
    const std::string titles[] = {input + "norm", output + "norm", input + "nans", output + "nans"};
    const auto columns =
        RowColumns::of_header({"module_name", "step", titles[0], titles[1], titles[2], titles[3]});
    REQUIRE(columns);
    REQUIRE(columns->rows_of_line() == 2);
    Row row;
    std::string name;
    REQUIRE(columns->read({"fc", "3", "1.5", "2.5", "0", ""}, row, 0, name));
    CHECK(row.name == "fc.input");
    CHECK(row.step == 3);
    CHECK(row.values[field_of(Op::norm)] == 1.5);
    CHECK(row.mask == ((1U << field_of(Op::norm)) | (1U << field_of(Op::nans))));
    REQUIRE(columns->read({"fc", "3", "1.5", "2.5", "0", ""}, row, 1, name));
    CHECK(row.name == "fc.output");
    CHECK(row.values[field_of(Op::norm)] == 2.5);
    CHECK(row.mask == 1U << field_of(Op::norm));
  }
}

TEST_CASE("an error names the cell and what was expected") {
  CHECK(error_of({"0", "a"}) == "found 2 cells; expected 9 as in the header");
  CHECK(error_of({"0", "a", "x", "0", "1", "1", "", "", ""}) ==
        "found \"x\" in the column step; expected a whole number");
  CHECK(error_of({"0", "a", "-1", "0", "1", "1", "", "", ""}) ==
        "found \"-1\" in the column step; expected a whole number");
  CHECK(error_of({"-1", "a", "1", "0", "1", "1", "", "", ""}) ==
        "found \"-1\" in the column vpp_stage; expected a whole number");
  CHECK(error_of({"0", "a", "1", "0", "1,5", "1", "", "", ""}) ==
        "found \"1,5\" in the column norm; expected a number");
  CHECK(error_of({"0", "a", "99999999999999999999", "0", "1", "1", "", "", ""}).find("step") !=
        std::string::npos);
}

TEST_CASE("a header needs a name and a step and no title twice") {
  CHECK(RowColumns::of_header({"name", "step"}));
  CHECK(RowColumns::of_header({"param_name", "step"}));
  CHECK(RowColumns::is_header({"module_name", "step"}));
  CHECK(RowColumns::of_header({"name", "step", "param_name"}).error() ==
        "the title \"param_name\" is there twice");
  CHECK(RowColumns::of_header({"name", "step", "input.norm", "input_grad.norm"}).error() ==
        "the title \"input_grad.norm\" is there twice");
  CHECK(RowColumns::of_header({"vpp_stage", "step"}).error().find("expected a header") != std::string::npos);
  CHECK(RowColumns::of_header({"name", "step", "norm", "norm"}).error() ==
        "the title \"norm\" is there twice");
}

TEST_CASE("numbers are read as Python and pandas print them") {
  double value = 0;
  for (const char* good : {"0.0", "1e-05", "1e+16", "nan", "inf", "-inf", "-0.5", "True"})
    CHECK(read_number(good, value));
  for (const char* bad : {"", " 1", "1 ", "x", "1,0", "0x10", "1e", "--1"}) CHECK(!read_number(bad, value));
}

struct Read {
  std::vector<std::string> names;
  std::vector<std::string> problems;
};

Read read_file(const std::filesystem::path& path) {
  Problems problems;
  RowFile file(path, problems);
  Read read;
  Row row;
  while (file.next(row)) read.names.emplace_back(row.name);
  read.problems = problems.messages();
  return read;
}

Read read_bytes(const std::string& text) {
  const TemporaryDirectory directory;
  write_text(directory / "file", text);
  Read read = read_file(directory / "file");
  for (std::string& problem : read.problems) problem.erase(0, (directory / "file").string().size());
  return read;
}

using Lines = std::vector<std::string>;

TEST_CASE("bad rows are reported with their line and the good ones kept") {
  const Read read =
      read_bytes("vpp_stage,name,step,norm\n0,a,1,0.5\n0,b,x,0.5\n0,c,1\n0,d,1,0.5\n0,\"e\"e,1,1\n0,f,1,1\n");
  CHECK(read.names == Lines{"a", "d", "f"});
  CHECK(read.problems ==
        Lines{":3: found \"x\" in the column step; expected a whole number; the row is left out",
              ":4: found 3 cells; expected 4 as in the header; the row is left out",
              ":6: text after a quoted cell; expected a comma or a line end; the row is left out"});
}

TEST_CASE("a torn last row and empty lines are left out in silence") {
  const Read read = read_bytes("name,step,norm\na,1,0.5\n\nb,1,0.");
  CHECK(read.names == Lines{"a"});
  CHECK(read.problems.empty());
}

TEST_CASE("a second header within a file holds for the rows after it") {
  const Read read = read_bytes("name,step,norm\na,1,0.5\nname,step,max,min\nb,2,1,0\nc,3,1\n");
  CHECK(read.names == Lines{"a", "b"});
  CHECK(read.problems.size() == 1);
}

TEST_CASE("both rows of a line of an older msprobe are read up to a bad cell") {
  const Read read = read_bytes(
      "vpp_stage,module_name,step,input.norm,output.norm\n0,a,1,0.5,1.5\n0,b,1,0.5,x\n0,c,y,1,1\n0,d,1,2,"
      "3\n");
  CHECK(read.names == Lines{"a.input", "a.output", "b.input", "d.input", "d.output"});
  CHECK(read.problems ==
        Lines{":3: found \"x\" in the column output.norm; expected a number; the row is left out",
              ":4: found \"y\" in the column step; expected a whole number; the row is left out"});
}

TEST_CASE(
    "rows of another width under one header are reported as msprobe writes them after a change of ops") {
  const Read read = read_bytes(
      "vpp_stage,name,step,norm,shape,dtype\n0,a,1,0.5,[4],torch.float32\n"
      "0,a,2,0.5,0.1,0.2,[4],torch.float32\n");
  CHECK(read.names == Lines{"a"});
  CHECK(read.problems == Lines{":3: found 8 cells; expected 6 as in the header; the row is left out"});
}

TEST_CASE("a file without a header has no rows and says so") {
  CHECK(read_bytes("").problems ==
        Lines{":1: no whole line; expected a header with the titles \"name\" and \"step\""});
  CHECK(read_bytes("\"name\"x,step\na,1\n").problems ==
        Lines{":1: text after a quoted cell; expected a comma or a line end; the file is left out"});
  CHECK(read_bytes("0,a,1,0.5\n").problems.front().find("expected a header") != std::string::npos);
  CHECK(read_bytes(std::string(100'000, '\0')).names.empty());
}

TEST_CASE("names keep NUL bytes and bytes that are not UTF-8") {
  const std::string name("a\0\xff\x1b", 4);
  CHECK(read_bytes("name,step\n" + name + ",1\n").names == Lines{name});
}

TEST_CASE("what is no regular file is refused without waiting for it") {
  const TemporaryDirectory directory;
  REQUIRE(mkfifo((directory / "pipe").c_str(), 0600) == 0);
  CHECK(read_file(directory / "pipe").problems.front().find("not a regular file") != std::string::npos);
  CHECK(read_file(directory.path()).problems.front().find("not a regular file") != std::string::npos);
  CHECK(read_file(directory / "missing").problems.front().find("cannot open: No such file") !=
        std::string::npos);
}

TEST_CASE("after ten problems only their number is kept") {
  Problems problems;
  for (int i = 0; i < 15; ++i) problems.add("f", 1, "x");
  CHECK(problems.count() == 15);
  CHECK(problems.messages().size() == 11);
  CHECK(problems.messages().back() == "and 5 more rows or files are left out");
}

}  // namespace

}  // namespace gradmon
