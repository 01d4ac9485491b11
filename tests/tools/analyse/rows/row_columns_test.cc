// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/rows/row_columns.h"

#include <cmath>

#include "control/debian_version.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

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

}  // namespace
}  // namespace gradmon
