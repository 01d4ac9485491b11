// SPDX-License-Identifier: Apache-2.0
#include "tools/convert/rank_rows.h"

#include <sys/stat.h>

#include <fstream>
#include <iterator>

#include "control/debian_version.h"
#include "tests/support/temporary_directory.h"
#include "tools/convert/row_records.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

// "3:a=1.5" of each row: step, name, norm.
std::string rows_of(const std::vector<InputFile>& files, ConversionMeter& meter, Problems& problems) {
  std::string text;
  RankRows rows(files, meter, problems);
  while (const Row* const row = rows.next()) {
    text += text.empty() ? "" : " ";
    text += std::to_string(row->step) + ':' + rows.names().name(rows.target()) + '=' +
            std::to_string(static_cast<int>(row->values[field_of(Op::norm)]));
  }
  return text;
}

class Files {
 public:
  // A file of the steps from `first` to `last`, of a start.
  Files& add(std::size_t start, int first, int last, const std::string& rows) {
    const std::string name = "f" + std::to_string(files_.size());
    write_text(directory_ / name, "name,step,norm\n" + rows);
    InputFile file;
    file.file.name.first_step = first;
    file.file.name.last_step = last;
    file.file.path = directory_ / name;
    file.start = start;
    files_.push_back(file);
    return *this;
  }
  const std::vector<InputFile>& all() const { return files_; }

 private:
  TemporaryDirectory directory_;
  std::vector<InputFile> files_;
};

TEST_CASE("of a step that two starts have collected, the rows of the later start are taken") {
  Files files;
  files.add(0, 0, 99, "a,0,1\na,1,2\nb,1,3\na,2,4\n").add(1, 0, 99, "a,1,5\na,3,6\n");
  ConversionMeter meter;
  Problems problems;
  CHECK(rows_of(files.all(), meter, problems) == "0:a=1 1:a=5 2:a=4 3:a=6");
  CHECK(meter.repeated == 2);
  CHECK(meter.rows == 4);
  CHECK(problems.count() == 0);
}

TEST_CASE("a file of a later start that begins amid an older file is opened in time") {
  Files files;
  files.add(0, 0, 9, "a,0,1\na,5,2\na,9,3\n").add(1, 5, 5, "a,5,7\n").add(1, 9, 9, "a,9,8\n");
  ConversionMeter meter;
  Problems problems;
  CHECK(rows_of(files.all(), meter, problems) == "0:a=1 5:a=7 9:a=8");
  CHECK(meter.repeated == 2);
}

TEST_CASE("of a hundred starts of the same steps the rows of the last one are taken once") {
  Files files;
  for (std::size_t start = 0; start < 100; ++start) {
    const std::string norm = std::to_string(start) + "\n";
    files.add(start, 0, 999, "a,0," + norm + "a,1," + norm + "a,2," + norm);
  }
  files.add(100, 2, 999, "a,2,100\na,3,100\n");
  ConversionMeter meter;
  Problems problems;
  CHECK(rows_of(files.all(), meter, problems) == "0:a=99 1:a=99 2:a=100 3:a=100");
  CHECK(meter.rows == 4);
  CHECK(meter.repeated == 298);
  CHECK(problems.count() == 0);
}

std::size_t descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

TEST_CASE("of long files of a hundred starts all rows of the last one are taken with 64 descriptors") {
  constexpr int kSteps = 8000;  // more than a block that is read at once
  Files files;
  for (std::size_t start = 0; start < 100; ++start) {
    std::string rows;
    for (int step = 0; step < kSteps; ++step)
      rows += "layers.0.a," + std::to_string(step) + "," + std::to_string(start) + "\n";
    files.add(start, 0, kSteps - 1, rows);
  }
  ConversionMeter meter;
  Problems problems;
  const std::size_t before = descriptors();
  std::size_t held = 0;
  int of_last = 0;
  {
    RankRows rows(files.all(), meter, problems);
    while (const Row* const row = rows.next()) {
      of_last += row->step == of_last && row->values[field_of(Op::norm)] == 99 ? 1 : 0;
      if (row->step == 0) held = descriptors();
    }
  }
  CHECK(of_last == kSteps);
  CHECK(held == before + 64);
  CHECK(meter.rows == kSteps);
  CHECK(problems.count() == 0);
}

TEST_CASE("several files of one start give all rows of a step") {
  Files files;
  files.add(0, 0, 9, "a,0,1\na,4,2\n").add(0, 0, 9, "b,4,3\na,5,4\n");
  ConversionMeter meter;
  Problems problems;
  CHECK(rows_of(files.all(), meter, problems) == "0:a=1 4:a=2 4:b=3 5:a=4");
}

TEST_CASE("of more names than are held in memory those that came first go on in later steps") {
  Files files;
  files.add(0, 0, 9, "a,0,1\nb,0,2\nc,0,3\nc,1,4\nb,1,5\na,1,6\n");
  ConversionMeter meter;
  Problems problems;
  RankRows rows(files.all(), meter, problems, 2);
  std::string text;
  while (const Row* const row = rows.next())
    text += std::to_string(row->step) + rows.names().name(rows.target()) + ' ';
  CHECK(text == "0a 0b 1b 1a ");
  CHECK(problems.count() == 2);
  CHECK(problems.messages().front().find("more than 2 names and micro steps") != std::string::npos);
}

TEST_CASE("a stopped meter ends the rows") {
  Files files;
  files.add(0, 0, 9, "a,0,1\na,1,2\n");
  ConversionMeter meter;
  Problems problems;
  RankRows rows(files.all(), meter, problems);
  REQUIRE(rows.next() != nullptr);
  meter.stop = true;
  CHECK(rows.next() == nullptr);
  CHECK(rows.next() == nullptr);
}

TEST_CASE("a file that is missing and a pipe are problems and do not wait") {
  const TemporaryDirectory directory;
  REQUIRE(::mkfifo((directory / "pipe").c_str(), 0600) == 0);
  std::vector<InputFile> files(2);
  files[0].file.path = directory / "gone";
  files[1].file.path = directory / "pipe";
  ConversionMeter meter;
  Problems problems;
  CHECK(rows_of(files, meter, problems) == "");
  CHECK(problems.messages() ==
        std::vector<std::string>{(directory / "gone").string() + ": cannot open: No such file or directory",
                                 (directory / "pipe").string() + ": not a regular file"});
}

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
