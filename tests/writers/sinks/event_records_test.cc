// SPDX-License-Identifier: Apache-2.0
#include "writers/sinks/event_records.h"

#include <cmath>
#include <limits>
#include <numeric>

#include "tests/support/catch.h"
#include "tests/writers/record_builder.h"
#include "tests/writers/sinks/event_reader.h"
#include "writers/sinks/row_encoder.h"

using namespace gradmon;

namespace {

// "00ff"
std::string hex(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::uint32_t unmasked(std::uint32_t masked) {
  const std::uint32_t rotated = masked - 0xa282ead8U;
  return rotated >> 17 | rotated << 15;
}

tensorboard::Event histogram_of(const BinCounts& counts) {
  return parse_events(histogram_record("0:w/rank2/update", counts, Step{7}, 1.5)).events.at(0);
}

bool is_near(double a, double b) { return std::fabs(a - b) < 1e-12; }

// A row of step 4 in micro step 3, as rank 2 writes it.
class RowBuilder : public RecordBuilder<RowBuilder> {
 public:
  explicit RowBuilder(Kind kind) : RecordBuilder(kind) {
    micro_step(3);
    layout_.ops = {Op::norm, Op::max};
    layout_.tags = TagForm::msprobe;
  }

  RowBuilder& by_kind() {
    layout_.tags = TagForm::gradmon;
    return *this;
  }

  RowBuilder& per_micro_batch() {
    layout_.micro_step_in_grad_unreduced = true;
    return *this;
  }
  std::string bytes() const {
    std::string out;
    RowEncoder(names_, Rank{2}, layout_).append(out, record_, 1.5);
    return out;
  }
  std::vector<Point> points() const { return points_of(parse_events(bytes())); }

 private:
  Layout layout_;
};

std::string tag_of(const RowBuilder& row) { return row.points().at(0).tag; }

RowBuilder norm_of(Kind kind, const char* name) { return RowBuilder(kind).name(name).value(Op::norm, 1); }

}  // namespace

TEST_CASE("checksums of any length are those of a computation bit by bit") {
  std::string bytes;
  for (unsigned i = 0; i < 3000; ++i) bytes += static_cast<char>(i * 2654435761U >> 24);
  for (std::size_t length = 0; length < bytes.size(); length += 1 + length / 7) {
    const std::string_view part = std::string_view(bytes).substr(0, length);
    CAPTURE(length);
    CHECK(unmasked(masked_crc32c(part)) == bitwise_crc32c(part));
  }
}

TEST_CASE("records are framed as by TensorBoard's own writer") {
  CHECK(hex(record_of("")) == "000000000000000029039807d8ea82a2");
  CHECK(hex(record_of("abc")) == "0300000000000000b099490e6162636e57f121");
}

TEST_CASE("records follow each other in one text") {
  std::string out = "before";
  RecordFrame frame(out);
  for (int i = 0; i < 2; ++i) {
    frame.begin();
    out += "abc";
    frame.end();
  }
  CHECK(out == "before" + record_of("abc") + record_of("abc"));
}

TEST_CASE("the header and the footer of a record are read back and a changed bit is seen") {
  const std::string record = record_of("abc");
  std::string header = record.substr(0, kRecordHeaderBytes), footer = record.substr(kRecordHeaderBytes + 3);
  REQUIRE(footer.size() == kRecordFooterBytes);
  CHECK(record_length(header) == 3);
  CHECK(record_length(record_of(std::string(70000, 'x')).substr(0, kRecordHeaderBytes)) == 70000);
  CHECK(is_footer_of("abc", footer));
  CHECK_FALSE(is_footer_of("abd", footer));
  header[0] = '\x02';
  footer[3] = static_cast<char>(footer[3] ^ 1);
  CHECK_FALSE(record_length(header));
  CHECK_FALSE(is_footer_of("abc", footer));
}

TEST_CASE("a histogram has thirty buckets over [-1, 1] and ends at the outermost bins with values") {
  BinCounts counts{};
  counts[0] = 0;
  counts[15] = 6;  // [0, 1/15)
  counts[20] = 3;  // [1/3, 6/15)
  const tensorboard::Event event = histogram_of(counts);
  CHECK(event.step() == 7);
  CHECK(event.wall_time() == 1.5);
  CHECK(event.summary().value(0).tag() == "0:w/rank2/update");
  const auto& histogram = event.summary().value(0).histo();
  REQUIRE(histogram.bucket_size() == 30);
  REQUIRE(histogram.bucket_limit_size() == 30);
  CHECK(histogram.bucket(15) == 6);
  CHECK(histogram.bucket(20) == 3);
  CHECK(is_near(histogram.bucket_limit(0), -1 + 1.0 / 15));
  CHECK(histogram.bucket_limit(14) == 0);
  CHECK(histogram.bucket_limit(29) == 1);
  CHECK(histogram.min() == 0);
  CHECK(is_near(histogram.max(), 0.4));
  CHECK(histogram.num() == 9);
  CHECK(is_near(histogram.sum(), 6.0 / 30 + 3 * 11.0 / 30));
  CHECK(is_near(histogram.sum_squares(), 6.0 / 900 + 3 * 121.0 / 900));
}

TEST_CASE("a histogram without values has no range") {
  const auto histogram = histogram_of({}).summary().value(0).histo();
  CHECK(histogram.bucket_size() == 30);
  CHECK(histogram.num() == 0);
  CHECK(histogram.min() == 0);
  CHECK(histogram.max() == 0);
}

TEST_CASE("a histogram of values in all bins ends at -1 and 1") {
  BinCounts counts;
  counts.fill(1);
  const auto histogram = histogram_of(counts).summary().value(0).histo();
  CHECK(histogram.min() == -1);
  CHECK(histogram.max() == 1);
  CHECK(is_near(histogram.sum(), 0));
}

TEST_CASE("the first record of a file has TensorBoard's version and the name of the writer") {
  CHECK(hex(file_version_record(1.5)) ==
        "2300000000000000b09f774309000000000000f83f1a0d627261696e2e4576656e743a3252090a0767726164"
        "6d6f6eb6bcb426");
}

TEST_CASE("a text is encoded as TensorBoard's own messages are") {
  CHECK(hex(text_record("config", "Revision 1\n\n    {}\n", Step{7}, 1.5)) ==
        "3c00000000000000c8b7a35209000000000000f83f10072a2f0a2d0a06636f6e66696742190807120042135265766973"
        "696f6e20310a0a202020207b7d0a4a080a060a0474657874b979ee25");
}

TEST_CASE("every line of a config is part of one block of code") {
  CHECK(config_markdown(Revision{3}, "{\n\n  \"a\": \"# b\"\n}") ==
        "Revision 3\n\n    {\n    \n      \"a\": \"# b\"\n    }\n");
  CHECK(config_markdown(Revision{3}, "{}\n") == "Revision 3\n\n    {}\n");
  CHECK(config_markdown(Revision{3}, "") == "Revision 3\n\n");
}

TEST_CASE("a row is encoded as TensorBoard's own messages are") {
  const auto row =
      RowBuilder(Kind::grad_reduced).name("fc1.weight").step(300).value(Op::norm, 0.5).value(Op::max, 0);
  CHECK(hex(row.bytes()) ==
        "6100000000000000008f906409000000000000f83f10ac022a530a280a21303a6663312e7765696768742f72616e6b322f"
        "706f73745f677261645f6e6f726d150000003f0a270a20303a6663312e7765696768742f72616e6b322f706f73745f677261"
        "645f6d61781500000000ae1f75d6");
}

TEST_CASE("tags are msprobe's, with its names of the tasks") {
  CHECK(tag_of(norm_of(Kind::actv, "fc1.input")) == "0:fc1.input:3/rank2/actv_norm");
  CHECK(tag_of(norm_of(Kind::actv_grad, "fc1.output_0")) == "0:fc1.output_0:3/rank2/actv_grad_norm");
  CHECK(tag_of(norm_of(Kind::grad_unreduced, "fc1.weight")) == "0:fc1.weight/rank2/acc_grad_norm");
  CHECK(tag_of(norm_of(Kind::grad_unreduced, "fc1.weight").per_micro_batch()) ==
        "0:fc1.weight:3/rank2/pre_grad_norm");
  CHECK(tag_of(norm_of(Kind::grad_reduced, "fc1.weight")) == "0:fc1.weight/rank2/post_grad_norm");
  CHECK(tag_of(norm_of(Kind::exp_avg, "fc1.weight")) == "0:fc1.weight/rank2/exp_avg_norm");
  CHECK(tag_of(norm_of(Kind::exp_avg_sq, "fc1.weight")) == "0:fc1.weight/rank2/exp_avg_sq_norm");
  CHECK(tag_of(norm_of(Kind::param_origin, "fc1.weight")) == "0:fc1.weight/rank2/param_origin_norm");
  CHECK(tag_of(norm_of(Kind::param_updated, "fc1.weight")) == "0:fc1.weight/rank2/param_updated_norm");
  CHECK(tag_of(norm_of(Kind::other, "all_reduce.post_0@a.py[3]")) ==
        "0:all_reduce.post_0@a.py[3]/rank2/other_norm");
  CHECK(tag_of(norm_of(Kind::grad_reduced, "fc1.weight").name("fc1.weight", 1)) ==
        "1:fc1.weight/rank2/post_grad_norm");
}

TEST_CASE("tags begin with what is measured, and name no rank") {
  const auto tag = [](RowBuilder row) { return tag_of(row.by_kind()); };
  CHECK(tag(norm_of(Kind::grad_reduced, "layers.3.mlp.0.weight")) ==
        "grad_reduced_norm/layers.3.mlp.0.weight");
  CHECK(tag(norm_of(Kind::actv, "fc1.input")) == "actv_norm/fc1.input:micro3");
  CHECK(tag(norm_of(Kind::grad_unreduced, "fc1.weight")) == "grad_unreduced_norm/fc1.weight");
  CHECK(tag(norm_of(Kind::grad_unreduced, "fc1.weight").per_micro_batch()) ==
        "grad_unreduced_norm/fc1.weight:micro3");
  CHECK(tag(norm_of(Kind::exp_avg_sq, "fc1.weight").name("fc1.weight", 1)) == "exp_avg_sq_norm/1:fc1.weight");
  CHECK(tag(norm_of(Kind::other, "12:a")) == "other_norm/0:12:a");
  CHECK(tag(norm_of(Kind::other, "x12:a")) == "other_norm/x12:a");
  CHECK(tag(norm_of(Kind::other, "")) == "other_norm/");
  CHECK(tag(RowBuilder(Kind::scalar).name("loss").value(Column::value, 1)) == "loss");
}

TEST_CASE("features have the tags of their columns") {
  CHECK(RowBuilder(Kind::attention_hook)
            .name("core.attention")
            .value(Column::entropy, 0.5)
            .value(Column::softmax_max, 0.25)
            .points() ==
        std::vector<Point>{{"0:core.attention:3/rank2/attention_hook_entropy", 4, 0.5F},
                           {"0:core.attention:3/rank2/attention_hook_softmax_max", 4, 0.25F}});
  CHECK(RowBuilder(Kind::linear_hook)
            .name("lin.linear")
            .value(Column::sr, 1.5)
            .value(Column::kernel_norm, 2)
            .points() == std::vector<Point>{{"0:lin.linear/rank2/linear_hook_sr", 4, 1.5F},
                                            {"0:lin.linear/rank2/linear_hook_kernel_norm", 4, 2}});
  CHECK(tag_of(RowBuilder(Kind::other).name("fc.weight").value(Column::mg_direction, 0.5)) ==
        "0:fc.weight/rank2/other_mg_direction");
  CHECK(tag_of(RowBuilder(Kind::moe_router_weight_hook).name("moe").value(Column::cosine, 1)) ==
        "0:moe/rank2/moe_router_weight_hook_cosine");
  CHECK(tag_of(RowBuilder(Kind::moe_router_logit_hook).name("moe").value(Column::entropy, 1)) ==
        "0:moe:3/rank2/moe_router_logit_hook_entropy");
}

TEST_CASE("a training scalar is drawn over steps and over samples") {
  CHECK(RowBuilder(Kind::scalar)
            .name("loss", 3)
            .value(Column::value, 2.5)
            .value(Column::samples, 123456789012.0)
            .points() == std::vector<Point>{{"loss", 4, 2.5F}, {"loss-vs-samples", 123456789012, 2.5F}});
  CHECK(RowBuilder(Kind::scalar).name("loss").value(Column::value, 2.5).points() ==
        std::vector<Point>{{"loss", 4, 2.5F}});
  CHECK(RowBuilder(Kind::scalar).name("loss").value(Column::samples, 2.5).points().empty());
}

TEST_CASE("figures of throughput that are per device or per day are drawn over steps only") {
  for (const char* const name :
       {"throughput_linearity", "model-flops-throughput-per-device", "B-samples-per-day"}) {
    CAPTURE(name);
    CHECK(RowBuilder(Kind::scalar).name(name).value(Column::value, 1).value(Column::samples, 8).points() ==
          std::vector<Point>{{name, 4, 1}});
  }
  CHECK(RowBuilder(Kind::scalar)
            .name("throughput")
            .value(Column::value, 1)
            .value(Column::samples, 8)
            .points()
            .size() == 2);
}

TEST_CASE("a parameter and a scalar of one name have their own tags") {
  const auto names = std::make_shared<NameTable>();
  RowEncoder encoder(names, Rank{0}, Layout{});
  Record row;
  row.target = names->intern("loss");
  row.mask = static_cast<ValueMask>(bit_of(Op::norm) | bit_of(Column::value));
  std::string out;
  for (const Kind kind : {Kind::actv, Kind::scalar, Kind::actv}) {
    row.kind = kind;
    row.micro_step = row.micro_step + 5;
    encoder.append(out, row, 0);
  }
  std::vector<std::string> tags;
  for (const Point& point : points_of(parse_events(out))) tags.push_back(point.tag);
  CHECK(tags == std::vector<std::string>{"actv_norm/loss:micro5", "loss", "actv_norm/loss:micro15"});
}

TEST_CASE("values are float32 and need not be finite") {
  const auto float_of = [](double value) {
    return RowBuilder(Kind::grad_reduced).value(Op::norm, value).points().at(0).value;
  };
  CHECK(float_of(0.1) == 0.1F);
  CHECK(std::isnan(float_of(std::nan(""))));
  CHECK(float_of(-std::numeric_limits<double>::infinity()) == -std::numeric_limits<float>::infinity());
  CHECK(float_of(1e300) == std::numeric_limits<float>::infinity());
  CHECK(float_of(16777217) == 16777216);
}

TEST_CASE("values that are absent or not among the columns are left out") {
  const auto points = RowBuilder(Kind::grad_reduced).value(Op::min, 1).value(Op::max, 2).name("w").points();
  CHECK(points == std::vector<Point>{{"0:w/rank2/post_grad_max", 4, 2}});
  CHECK(RowBuilder(Kind::grad_reduced).value(Op::min, 1).bytes().empty());
}

TEST_CASE("names of any bytes and length make tags in UTF-8") {
  CHECK(tag_of(norm_of(Kind::exp_avg, "gewicht\xc2\xb5\xff.w")) ==
        "0:gewicht\xc2\xb5\xef\xbf\xbd.w/rank2/exp_avg_norm");
  CHECK(tag_of(norm_of(Kind::exp_avg, "")) == "0:/rank2/exp_avg_norm");
  for (const std::size_t length : {90U, 100U, 110U, 120U, 130U, 16300U, 16400U, 70000U}) {
    const std::string name(length, 'n');
    CHECK(tag_of(norm_of(Kind::exp_avg, name.c_str())) == "0:" + name + "/rank2/exp_avg_norm");
  }
}
