// SPDX-License-Identifier: Apache-2.0
#include "writers/sinks/csv_sink.h"

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>

#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/writers/files_in.h"
#include "tests/writers/record_builder.h"
#include "tests/writers/sample_records.h"
#include "tests/writers/small_disk.h"
#include "writers/queue/writer_thread.h"
#include "writers/sinks/csv_text.h"

using namespace gradmon;

namespace {

const std::vector<Op> kAllOps = {Op::norm, Op::min, Op::max, Op::mean, Op::nans, Op::zeros};

struct Fixture {
  Fixture() : sink([this] { return scratch.path(); }, names) {}

  void begin(const Layout& layout) { REQUIRE(sink.begin_revision(layout)); }
  bool write(std::int64_t step, const std::vector<Record>& records) {
    return sink.write_step(Step{step}, records).has_value();
  }
  std::string text(const char* file) const { return read_text(scratch.path() / file); }

  const TemporaryDirectory scratch;
  const std::shared_ptr<NameTable> names = std::make_shared<NameTable>();
  CsvSink sink;
};

Layout layout(std::vector<Op> ops, std::int64_t steps_a_file = 1, std::uint64_t revision = 1) {
  Layout made;
  made.revision = Revision{revision};
  made.ops = std::move(ops);
  made.step_count_per_record = steps_a_file;
  return made;
}

Record norm_record(std::int64_t step, std::uint32_t target, double norm) {
  Record record = plain_record(step, 0);
  record.target = target;
  record.values[static_cast<std::size_t>(Op::norm)] = norm;
  return record;
}

// Builds one row of step 4; text() is the file that the sink writes.
class RowBuilder : public RecordBuilder<RowBuilder> {
 public:
  using RecordBuilder::RecordBuilder;

  std::string text() const {
    const TemporaryDirectory scratch;
    CsvSink sink([&] { return scratch.path(); }, names_);
    Layout layout;
    layout.ops = {Op::norm, Op::nans};
    REQUIRE(sink.begin_revision(layout));
    REQUIRE(sink.write_step(Step{4}, {record_}));
    return read_text(scratch.path() / (std::string(name_of(record_.kind)) + "_4-4.csv"));
  }
};

}  // namespace

TEST_CASE("the sample rows of FORMAT.md are written exactly") {
  Fixture f;
  f.begin(layout(kAllOps));
  const auto input = f.names->intern("fc1.input");
  const auto weight = f.names->intern("fc1.weight");
  const auto small = f.names->intern("[5, 8]");
  const auto large = f.names->intern("[16, 8]");
  // Values by Op: min, max, mean, norm, nans, zeros.
  const std::array<double, kOps> activation = {-2.4919391, 1.7240857, 0.0346262, 6.6531857, 0, 0};
  const std::array<double, kOps> parameter = {-0.1027573, 0.1069643, -0.0013691, 0.4696812, 0, 0};
  CHECK(f.write(1, {sample_record(Kind::actv, 1, input, small, activation),
                    sample_record(Kind::grad_reduced, 1, weight, large, parameter)}));
  CHECK(f.text("actv_1-1.csv") ==
        "vpp_stage,name,step,micro_step,norm,min,max,mean,nans,zeros,shape,dtype\n"
        "0,fc1.input,1,0,6.653186,-2.491939,1.724086,0.034626,0,0.0,\"[5, 8]\",torch.float32\n");
  CHECK(f.text("grad_reduced_1-1.csv") ==
        "vpp_stage,name,step,norm,min,max,mean,nans,zeros,shape,dtype\n"
        "0,fc1.weight,1,0.469681,-0.102757,0.106964,-0.001369,0,0.0,\"[16, 8]\",torch.float32\n");
}

TEST_CASE("the marks of a sample are columns of all kinds of statistics but other, empty if all was read") {
  Fixture f;
  Layout marked = layout({Op::norm});
  marked.samples = true;
  f.begin(marked);
  Record sample = norm_record(2, f.names->intern("large"), 30);
  sample.mask = static_cast<ValueMask>(sample.mask | kSampleMarks);
  sample.values[static_cast<std::size_t>(Column::sampled)] = 0.0625;
  sample.values[static_cast<std::size_t>(Column::mean_se)] = 1e-8;
  sample.values[static_cast<std::size_t>(Column::norm_se)] = 0.5;
  CHECK(f.write(2, {sample, norm_record(2, f.names->intern("small"), 4)}));
  CHECK(f.text("grad_reduced_2-2.csv") ==
        "vpp_stage,name,step,norm,sampled,mean_se,norm_se,shape,dtype\n"
        "0,large,2,30.0,0.0625,1.00000e-08,0.5,,\n0,small,2,4.0,,,,,\n");
  for (std::size_t kind = 0; kind < kRecordKinds; ++kind) {
    const auto of_kind = static_cast<Kind>(kind);
    const auto more = columns_of(of_kind, marked).size() - columns_of(of_kind, layout({Op::norm})).size();
    const bool has_marks = kind <= static_cast<std::size_t>(Kind::param_updated);
    CHECK(more == (has_marks ? 3U : 0U));
  }
}

TEST_CASE("names with special characters are quoted as by Python's csv module") {
  Fixture f;
  f.begin(layout({Op::norm}));
  std::vector<Record> records;
  for (const char* const name : {"a/b", "a\\b", "..", "a,b", "say \"x\"", "=1+1", "two\nlines", "esc\x1b[0m",
                                 "gewichtµ层", "", " a "}) {
    records.push_back(norm_record(3, f.names->intern(name), 1));
  }
  records.push_back(norm_record(3, f.names->intern("chunk", 2), 1));
  const std::string longest(4096, 'n');
  records.push_back(norm_record(3, f.names->intern(longest), 1));
  CHECK(f.write(3, records));
  CHECK(f.text("grad_reduced_3-3.csv") ==
        "vpp_stage,name,step,norm,shape,dtype\n"
        "0,a/b,3,1.0,,\n0,a\\b,3,1.0,,\n0,..,3,1.0,,\n0,\"a,b\",3,1.0,,\n0,\"say \"\"x\"\"\",3,1.0,,\n"
        "0,=1+1,3,1.0,,\n0,\"two\nlines\",3,1.0,,\n0,esc\x1b[0m,3,1.0,,\n0,gewichtµ层,3,1.0,,\n0,,3,1.0,,\n"
        "0, a ,3,1.0,,\n2,chunk,3,1.0,,\n0," +
            longest + ",3,1.0,,\n");
}

TEST_CASE("values that are not finite are written as nan or inf and absent values leave an empty cell") {
  Fixture f;
  f.begin(layout({Op::norm, Op::min, Op::max, Op::nans}));
  Record record = norm_record(0, 0, std::nan(""));
  record.values = {-std::numeric_limits<double>::infinity(), 1, 0, std::nan(""), 7, 0};
  record.mask = static_cast<ValueMask>(bit_of(Op::norm) | bit_of(Op::min) | bit_of(Op::nans));
  CHECK(f.write(0, {record}));
  CHECK(f.text("grad_reduced_0-0.csv") ==
        "vpp_stage,name,step,norm,min,max,nans,shape,dtype\n0,,0,nan,-inf,,7,,\n");
}

TEST_CASE("ndigits sets the number of decimals, and digits that of significant digits instead") {
  const auto text = [](const Layout& layout, const std::vector<double>& norms) {
    Fixture f;
    f.begin(layout);
    for (const double norm : norms) CHECK(f.write(0, {norm_record(0, 0, norm)}));
    return f.text("grad_reduced_0-0.csv");
  };
  Layout decimals = layout({Op::norm}), significant = layout({Op::norm});
  decimals.ndigits = 3;
  significant.digits = 7;
  const std::string header = "vpp_stage,name,step,norm,shape,dtype\n";
  CHECK(text(decimals, {3.14159, 0.00001234}) == header + "0,,0,3.142,,\n0,,0,1.23e-05,,\n");
  CHECK(text(significant, {31.4159265358, 0.0000123456789}) ==
        header + "0,,0,31.41593,,\n0,,0,1.234568e-05,,\n");
}

TEST_CASE("a file holds the steps of its range") {
  Fixture f;
  f.begin(layout({Op::norm}, 10));
  for (const std::int64_t step : {8, 9, 10, 19, 20}) CHECK(f.write(step, {norm_record(step, 0, 1)}));
  const std::string header = "vpp_stage,name,step,norm,shape,dtype\n";
  CHECK(f.text("grad_reduced_0-9.csv") == header + "0,,8,1.0,,\n0,,9,1.0,,\n");
  CHECK(f.text("grad_reduced_10-19.csv") == header + "0,,10,1.0,,\n0,,19,1.0,,\n");
  CHECK(f.text("grad_reduced_20-29.csv") == header + "0,,20,1.0,,\n");
  CHECK(files_in(f.scratch.path()).size() == 3);
}

TEST_CASE("micro steps of unreduced gradients have a column if the layout says so") {
  Fixture f;
  Layout micro = layout({Op::norm});
  Record record = norm_record(2, 0, 1);
  record.kind = Kind::grad_unreduced;
  record.micro_step = 3;
  f.begin(micro);
  CHECK(f.write(2, {record}));
  micro.micro_step_in_grad_unreduced = true;
  micro.revision = Revision{2};
  f.begin(micro);
  CHECK(f.write(2, {record}));
  CHECK(f.text("grad_unreduced_2-2.csv") == "vpp_stage,name,step,norm,shape,dtype\n0,,2,1.0,,\n");
  CHECK(f.text("grad_unreduced_2-2.r2.csv") ==
        "vpp_stage,name,step,micro_step,norm,shape,dtype\n0,,2,3,1.0,,\n");
}

TEST_CASE("a revision with other columns begins a file of its own") {
  Fixture f;
  f.begin(layout({Op::norm}, 100, 1));
  CHECK(f.write(1, {norm_record(1, 0, 1)}));
  f.begin(layout({Op::norm, Op::max}, 100, 7));
  CHECK(f.write(2, {norm_record(2, 0, 1)}));
  CHECK(f.write(3, {norm_record(3, 0, 1)}));
  f.begin(layout({Op::norm}, 100, 8));
  CHECK(f.write(4, {norm_record(4, 0, 1)}));
  CHECK(f.text("grad_reduced_0-99.csv") == "vpp_stage,name,step,norm,shape,dtype\n0,,1,1.0,,\n0,,4,1.0,,\n");
  CHECK(f.text("grad_reduced_0-99.r7.csv") ==
        "vpp_stage,name,step,norm,max,shape,dtype\n0,,2,1.0,,,\n0,,3,1.0,,,\n");
}

TEST_CASE("a file that cannot be written loses its rows and no others") {
  Fixture f;
  std::filesystem::create_directory(f.scratch.path() / "grad_reduced_1-1.csv");
  f.begin(layout({Op::norm}));
  Record before = norm_record(1, 0, 1);
  before.kind = Kind::actv;
  const auto written = f.sink.write_step(Step{1}, {before, norm_record(1, 0, 1), norm_record(1, 0, 2)});
  REQUIRE_FALSE(written);
  CHECK(written.error().rows_lost == 2);
  CHECK(f.text("actv_1-1.csv") == "vpp_stage,name,step,micro_step,norm,shape,dtype\n0,,1,0,1.0,,\n");
}

namespace {

constexpr int kRowsAStep = 3000;
const char* const kNormHeader = "vpp_stage,name,step,norm,shape,dtype\n";

std::vector<Record> many_records(std::int64_t step) {
  std::vector<Record> records;
  for (int i = 0; i < kRowsAStep; ++i) records.push_back(norm_record(step, 0, i));
  return records;
}

}  // namespace

TEST_CASE("on a full disk rows sent are rows in the files and rows counted as lost and writing resumes") {
  for (const std::int64_t steps_a_file : {1, 1000}) {
    const TemporaryDirectory scratch;
    std::size_t sent = 0, rows = 0, lost_while_full = 0, lost_at_the_end = 0;
    RetryingSink::Outcome sum;
    const bool mounted = on_small_disk(scratch.path(), 2'000'000, [&] {
      const auto directory = [&] { return scratch.path(); };
      RetryingSink sink(std::make_unique<CsvSink>(directory, std::make_shared<NameTable>()),
                        layout({Op::norm}, steps_a_file),
                        {std::chrono::milliseconds(0), std::chrono::milliseconds(0)});
      for (std::int64_t step = 0; step < 30; ++step) {
        if (step == 10) std::ofstream(scratch / "filler") << std::string(3'000'000, 'x');  // more than fits
        if (step == 20) std::filesystem::remove(scratch / "filler");
        const auto outcome = sink.write(Step{step}, many_records(step), {});
        sent += kRowsAStep;
        sum.written += outcome.written;
        sum.lost += outcome.lost;
        (step < 20 ? lost_while_full : lost_at_the_end) += outcome.lost;
      }
      for (const std::string& file : files_in(scratch.path())) {
        const std::string text = read_text(scratch / file);
        REQUIRE(text.compare(0, std::strlen(kNormHeader), kNormHeader) == 0);
        REQUIRE(text.back() == '\n');
        rows += static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')) - 1;
      }
    });
    if (!mounted) {
      WARN("skipped: needs root, to mount a small disk");
      return;
    }
    CAPTURE(steps_a_file);
    CHECK(lost_while_full == 10 * kRowsAStep);
    CHECK(lost_at_the_end == 0);
    CHECK(sent == sum.written + sum.lost);
    CHECK(rows == sum.written);
  }
}

TEST_CASE("each kind of row has the columns of its kind, and cells without a value are empty") {
  using Row = RowBuilder;
  const std::string other = "vpp_stage,name,step,mg_direction,norm,nans,shape,dtype\n";
  const std::vector<std::pair<Row, std::string>> cases{
      {Row(Kind::attention_hook)
           .name("att")
           .micro_step(2)
           .value(Column::entropy, 0.9319061)
           .value(Column::softmax_max, 0.584399),
       "vpp_stage,name,step,micro_step,entropy,softmax_max\n0,att,4,2,0.931906,0.584399\n"},
      {Row(Kind::linear_hook)
           .name("lin.linear", 1)
           .value(Column::sr, 1.630293)
           .value(Column::kernel_norm, 0.987109),
       "vpp_stage,name,step,sr,kernel_norm\n1,lin.linear,4,1.630293,0.987109\n"},
      {Row(Kind::other)
           .name("all_reduce.post_0@a,b[3]")
           .tensor("[8]", DType::bfloat16)
           .value(Op::norm, 2)
           .value(Op::nans, 1),
       other + "0,\"all_reduce.post_0@a,b[3]\",4,,2.0,1,[8],torch.bfloat16\n"},
      {Row(Kind::other).name("fc.weight").value(Column::mg_direction, 0.75),
       other + "0,fc.weight,4,0.75,,,,\n"},
      {Row(Kind::moe_router_weight_hook).name("moe.router").value(Column::cosine, -0.125),
       "vpp_stage,name,step,cosine\n0,moe.router,4,-0.125\n"},
      {Row(Kind::moe_router_logit_hook).name("moe.router").micro_step(1).value(Column::entropy, std::nan("")),
       "vpp_stage,name,step,micro_step,entropy\n0,moe.router,4,1,nan\n"},
      {Row(Kind::scalar)
           .name("loss", 3)
           .value(Column::samples, 123456789012.0)
           .value(Column::value, 2.345678),
       "name,step,samples,value\nloss,4,123456789012,2.345678\n"},
      {Row(Kind::scalar).name("loss").value(Column::value, 1), "name,step,samples,value\nloss,4,,1.0\n"}};
  for (const auto& [row, text] : cases) CHECK(row.text() == text);
}

TEST_CASE("the header of every kind has one name for each column") {
  for (std::size_t kind = 0; kind < kRecordKinds; ++kind) {
    const auto columns = columns_of(static_cast<Kind>(kind), Layout{});
    const std::string header = csv_header(columns);
    const auto commas = std::count(header.begin(), header.end(), ',');
    CAPTURE(kKindNames[kind]);
    CHECK(static_cast<std::size_t>(commas) + 1 == columns.size());
    CHECK(header.back() == '\n');
  }
}
