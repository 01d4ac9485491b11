// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "control/debian_version.h"
#include "tests/support/temporary_directory.h"
#include "tests/writers/files_in.h"
#include "tests/writers/record_builder.h"
#include "writers/sinks/csv/csv_sink.h"
#include "writers/sinks/csv/csv_text.h"
#include GRADMON_CATCH_HEADER

using namespace gradmon;

namespace {

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

TEST_CASE("attention features have their micro step and no shape") {
  CHECK(RowBuilder(Kind::attention_hook)
            .name("core.attention")
            .micro_step(2)
            .value(Column::entropy, 0.9319061)
            .value(Column::softmax_max, 0.584399)
            .text() ==
        "vpp_stage,name,step,micro_step,entropy,softmax_max\n"
        "0,core.attention,4,2,0.931906,0.584399\n");
}

TEST_CASE("weight spectra have neither micro step nor shape") {
  CHECK(RowBuilder(Kind::linear_hook)
            .name("lin.linear", 1)
            .value(Column::sr, 1.630293)
            .value(Column::kernel_norm, 0.987109)
            .text() == "vpp_stage,name,step,sr,kernel_norm\n1,lin.linear,4,1.630293,0.987109\n");
}

TEST_CASE("a communication row leaves the momentum's cell empty") {
  CHECK(RowBuilder(Kind::other)
            .name("all_reduce.post_0@a,b[3]")
            .tensor("[8]", DType::bfloat16)
            .value(Op::norm, 2)
            .value(Op::nans, 1)
            .text() ==
        "vpp_stage,name,step,mg_direction,norm,nans,shape,dtype\n"
        "0,\"all_reduce.post_0@a,b[3]\",4,,2.0,1,[8],torch.bfloat16\n");
}

TEST_CASE("a momentum row leaves the cells of communication empty") {
  CHECK(RowBuilder(Kind::other).name("fc.weight").value(Column::mg_direction, 0.75).text() ==
        "vpp_stage,name,step,mg_direction,norm,nans,shape,dtype\n0,fc.weight,4,0.75,,,,\n");
}

TEST_CASE("router features have one number each") {
  CHECK(RowBuilder(Kind::moe_router_weight_hook).name("moe.router").value(Column::cosine, -0.125).text() ==
        "vpp_stage,name,step,cosine\n0,moe.router,4,-0.125\n");
  CHECK(RowBuilder(Kind::moe_router_logit_hook)
            .name("moe.router")
            .micro_step(1)
            .value(Column::entropy, std::nan(""))
            .text() == "vpp_stage,name,step,micro_step,entropy\n0,moe.router,4,1,nan\n");
}

TEST_CASE("a training scalar has the number of samples seen and no stage") {
  CHECK(RowBuilder(Kind::scalar)
            .name("loss", 3)
            .value(Column::samples, 123456789012.0)
            .value(Column::value, 2.345678)
            .text() == "name,step,samples,value\nloss,4,123456789012,2.345678\n");
  CHECK(RowBuilder(Kind::scalar).name("loss").value(Column::value, 1).text() ==
        "name,step,samples,value\nloss,4,,1.0\n");
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
