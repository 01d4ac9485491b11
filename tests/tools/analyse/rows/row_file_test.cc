// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/rows/row_file.h"

#include <sys/stat.h>

#include <string>

#include "control/debian_version.h"
#include "tests/support/temporary_directory.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

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
