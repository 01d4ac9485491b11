// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/row_records.h"

#include "control/debian_version.h"
#include "tests/support/temporary_directory.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

// The shapes of the records that the rows of a CSV file make.
std::vector<std::string> shapes_in(const std::string& rows, const std::shared_ptr<NameTable>& names) {
  const TemporaryDirectory directory;
  write_text(directory / "rows", "name,step,norm,shape,dtype\n" + rows);
  InputFile file;
  file.file.path = directory / "rows";
  const std::vector<InputFile> files = {file};
  ConversionMeter meter;
  Problems problems;
  RankRows from(files, meter, problems);
  RowRecords records(Kind::grad_reduced, names);
  std::vector<std::string> shapes;
  while (const Row* const row = from.next()) {
    records.extend_layout(*row);
    const Record record = records.record_of(from, *row);
    CHECK(names->name(record.target) == row->name);
    CHECK(record.dtype == DType::float32);
    shapes.push_back(names->name(record.shape));
  }
  CHECK(problems.count() == 0);
  return shapes;
}

TEST_CASE("each record has the shape of its row, also where the shapes of a target change") {
  const auto names = std::make_shared<NameTable>();
  CHECK(shapes_in("a,0,1,[2],torch.float32\nb,0,1,[3],torch.float32\na,1,1,[4],torch.float32\n"
                  "b,1,1,[3],torch.float32\na,2,1,[2],torch.float32\na,3,1,,torch.float32\n",
                  names) == std::vector<std::string>{"[2]", "[3]", "[4]", "[3]", "[2]", ""});
  CHECK(names->size() == 6);  // with the empty text
}

TEST_CASE("rows with ever new shapes do not fill the memory: beyond a bound a row has no shape") {
  const auto names = std::make_shared<NameTable>();
  for (std::size_t i = 1; i < NameTable::kMostShapes; ++i) names->intern_shape("[" + std::to_string(i) + "]");
  CHECK(shapes_in("a,0,1,\"[7, 7]\",torch.float32\na,1,1,\"[8, 8]\",torch.float32\nb,1,1,[5],torch.float32\n"
                  "a,2,1,\"[7, 7]\",torch.float32\n",
                  names) == std::vector<std::string>{"[7, 7]", "", "[5]", "[7, 7]"});
}

}  // namespace
}  // namespace gradmon
