// SPDX-License-Identifier: Apache-2.0
#include "tools/analyse/anomaly_dumps.h"

#include <chrono>

#include "control/debian_version.h"
#include "tests/support/temporary_directory.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using Lines = std::vector<std::string>;

// The example of msprobe's documentation.
constexpr const char* kDocumented = R"({
 "0:1.self_attention.core_attention_flash_0/rank0/input_grad_step_1_call_112": {
  "rank": 0,
  "step": 1,
  "micro_step": 0,
  "pp_stage": 0,
  "vpp_stage": 0,
  "call_id": 112,
  "tag_name": "0:1.self_attention.core_attention_flash_0/rank0/input_grad",
  "message": "Rule AnomalyTurbulence reports anomaly signal in ('0:1.self_attention.core_attention_flash_0/rank0/input_grad', 'min') at step 1.",
  "group_mates": [
   0,
   1
  ]
 }
})";

Anomaly anomaly(const std::string& message, std::int64_t step, const std::string& tag,
                std::int64_t call = 0) {
  Anomaly made;
  made.message = message;
  made.step = step;
  made.tag_name = tag;
  made.call_id = call;
  return made;
}

Lines messages_of(const std::vector<Anomaly>& anomalies) {
  Lines messages;
  for (const Anomaly& one : anomalies) messages.push_back(one.message);
  return messages;
}

TEST_CASE("anomalies are in the order of msprobe's anomaly_processor") {
  Anomaly late = anomaly("second micro step", 1, "0:a/rank0/actv");
  late.micro_step = 1;
  Anomaly chunk = anomaly("forward, chunk 1", 1, "1:a/rank0/actv");
  chunk.vpp_stage = 1;
  Anomaly stage = anomaly("forward, stage 1", 1, "0:a/rank0/actv");
  stage.pp_stage = 1;
  Anomaly backward_stage = anomaly("backward, stage 1", 1, "0:a/rank0/post_grad", 9);
  backward_stage.pp_stage = 1;
  CHECK(messages_of(first_of(
            {late, anomaly("step 2", 2, "0:a/rank0/actv"), anomaly("optimizer", 1, "0:a/rank0/exp_avg"),
             anomaly("backward", 1, "0:a/rank0/pre_grad"), backward_stage, chunk, stage,
             anomaly("forward, call 7", 1, "0:a/rank0/actv", 7), anomaly("forward", 1, "0:a/rank0/actv"),
             anomaly("unknown", 1, "0:a/rank0/param_origin")},
            100)) == Lines{"unknown", "forward", "forward, call 7", "forward, stage 1", "forward, chunk 1",
                           "backward, stage 1", "backward", "optimizer", "second micro step", "step 2"});
}

TEST_CASE("the first ones are kept and equal ones keep their order") {
  const std::vector<Anomaly> all = {anomaly("b", 1, "t/actv"), anomaly("a", 1, "t/actv"),
                                    anomaly("c", 0, "t/actv")};
  CHECK(messages_of(first_of(all, 2)) == Lines{"c", "b"});
  CHECK(first_of(all, 9).size() == 3);
}

TEST_CASE("the example of msprobe's documentation comes out byte for byte") {
  const TemporaryDirectory directory;
  std::filesystem::create_directory(directory / "rank0");
  write_text(directory / "rank0/anomaly.json", kDocumented);
  const auto dumps = read_anomaly_dumps(directory.path(), {});
  REQUIRE(dumps);
  CHECK(dumps->left_out.empty());
  CHECK(analyse_json(dumps->first) == kDocumented);
}

TEST_CASE("a key with an op is kept and text is escaped as Python does") {
  Anomaly one = anomaly("\xC3\xA4 \"\x7F\n", 1, "0:a/rank0/actv");
  one.key = "0:a/rank0/actv_step_1_call_0_norm";
  CHECK(analyse_json({one}) ==
        "{\n \"0:a/rank0/actv_step_1_call_0_norm\": {\n  \"rank\": 0,\n  \"step\": 1,\n  \"micro_step\": 0,\n"
        "  \"pp_stage\": 0,\n  \"vpp_stage\": 0,\n  \"call_id\": 0,\n  \"tag_name\": \"0:a/rank0/actv\",\n"
        "  \"message\": \"\\u00e4 \\\"\\u007f\\n\",\n  \"group_mates\": null\n }\n}");
}

TEST_CASE("the dumps of all ranks are merged and steps are chosen") {
  const TemporaryDirectory directory;
  for (int rank : {2, 0, 10}) {
    const auto place = directory / ("rank" + std::to_string(rank));
    std::filesystem::create_directory(place);
    std::string text;
    for (int step = 0; step < 3; ++step)
      text += (text.empty() ? "{" : ",") + std::string("\"k") + std::to_string(rank) + std::to_string(step) +
              "\": {\"step\": " + std::to_string(step) + ", \"message\": \"rank " + std::to_string(rank) +
              " step " + std::to_string(step) + "\", \"tag_name\": \"t/actv\"}";
    write_text(place / "anomaly.json", text + "}");
  }
  std::filesystem::create_directory(directory / "empty");
  const auto all = read_anomaly_dumps(directory.path(), {4, {}});
  REQUIRE(all);
  CHECK(all->anomalies == 9);
  CHECK(messages_of(all->first) ==
        Lines{"rank 0 step 0", "rank 2 step 0", "rank 10 step 0", "rank 0 step 1"});
  CHECK(messages_of(read_anomaly_dumps(directory.path(), {8, {2, 7}})->first) ==
        Lines{"rank 0 step 2", "rank 2 step 2", "rank 10 step 2"});
}

TEST_CASE("bad entries and broken dumps are left out by name and the good ones kept") {
  const auto read = [](const std::string& text) {
    const TemporaryDirectory directory;
    std::filesystem::create_directory(directory / "rank0");
    write_text(directory / "rank0/anomaly.json", text);
    return *read_anomaly_dumps(directory.path(), {});
  };
  const AnomalyDumps mixed =
      read(R"({"a": {"step": "1"}, "b": {"step": 2, "message": "b"}, "c": 5, "d": [{"step": 1}]})");
  CHECK(messages_of(mixed.first) == Lines{"b"});
  REQUIRE(mixed.left_out.size() == 3);
  CHECK(mixed.left_out[0].find("a: expected a whole number for step; left out") != std::string::npos);
  const AnomalyDumps torn = read(R"({"a": {"step": 1, "message": "a"}, "b": {"st)");
  CHECK(messages_of(torn.first) == Lines{"a"});
  CHECK(torn.left_out.size() == 1);
  for (const std::string& text : {std::string(), std::string("[{\"step\": 1}]"), std::string("7"),
                                  std::string(5000, '['), std::string(100, '\0')}) {
    const AnomalyDumps none = read(text);
    CHECK(none.first.empty());
    CHECK(none.left_out.size() == 1);
  }
}

TEST_CASE("a dump nested too deep for the stack is left out by name") {
  const TemporaryDirectory directory;
  for (const char* rank : {"rank0", "rank1"}) std::filesystem::create_directory(directory / rank);
  write_text(
      directory / "rank0/anomaly.json",
      R"({"a": {"step": 1, "group_mates": )" + std::string(200'000, '[') + std::string(200'000, ']') + "}}");
  write_text(directory / "rank1/anomaly.json", R"({"b": {"step": 1, "message": "b"}})");
  const auto dumps = read_anomaly_dumps(directory.path(), {});
  REQUIRE(dumps);
  CHECK(messages_of(dumps->first) == Lines{"b"});
  CHECK(dumps->left_out == Lines{(directory / "rank0/anomaly.json").string() +
                                 ": expected brackets nested at most 100 deep; left out"});
}

// A minute is a hundred times what it takes; a look through all members for each took hours.
TEST_CASE("a dump of a million members that are no alerts is read in time") {
  const TemporaryDirectory directory;
  std::filesystem::create_directory(directory / "rank0");
  std::string text = "{";
  for (int i = 0; i < 1'000'000; ++i) text += "\"k" + std::to_string(i) + "\":1,";
  write_text(directory / "rank0/anomaly.json", text + R"("last": {"message": "last"}})");
  const auto begun = std::chrono::steady_clock::now();
  const auto dumps = read_anomaly_dumps(directory.path(), {});
  CHECK(std::chrono::steady_clock::now() - begun < std::chrono::minutes(1));
  REQUIRE(dumps);
  CHECK(messages_of(dumps->first) == Lines{"last"});
  CHECK(dumps->left_out.back() == "and 999990 more alerts or files are left out");
}

// Half a minute is ten times what it takes; with all that is kept sorted after each dump it took several.
TEST_CASE("many anomalies of many dumps are kept in time") {
  constexpr int kDumps = 1000;
  constexpr int kAnomalies = 200;
  const TemporaryDirectory directory;
  std::string text = "{";
  for (int i = 0; i < kAnomalies; ++i)
    text += (i == 0 ? "" : ",") + std::string("\"k") + std::to_string(i) +
            R"(": {"tag_name": "0:layers.0.self_attention.linear_qkv.weight/rank0/actv", "step": )" +
            std::to_string((7 * i) % kAnomalies) + "}";
  text += "}";
  for (int rank = 0; rank < kDumps; ++rank) {
    const auto place = directory / ("rank" + std::to_string(rank));
    std::filesystem::create_directory(place);
    write_text(place / "anomaly.json", text);
  }
  const auto begun = std::chrono::steady_clock::now();
  const auto dumps = read_anomaly_dumps(directory.path(), {1'000'000, {}});
  CHECK(std::chrono::steady_clock::now() - begun < std::chrono::seconds(30));
  REQUIRE(dumps);
  CHECK(dumps->anomalies == kDumps * kAnomalies);
  REQUIRE(dumps->first.size() == kDumps * kAnomalies);
  CHECK(dumps->first.front().step == 0);
  CHECK(dumps->first.back().step == kAnomalies - 1);
}

TEST_CASE("objects in a dump have the keys that the dump has") {
  const TemporaryDirectory directory;
  std::filesystem::create_directory(directory / "rank0");
  write_text(directory / "rank0/anomaly.json",
             R"({"a": {"group_mates": [{"b": [1, -2, 0.5], "a": {"x": null, "y": [true]}}, [], {}, "t"]}})");
  const auto dumps = read_anomaly_dumps(directory.path(), {});
  REQUIRE(dumps);
  REQUIRE(dumps->first.size() == 1);
  CHECK(dumps->first[0].group_mates.dump() == R"([{"a":{"x":null,"y":[true]},"b":[1,-2,0.5]},[],{},"t"])");
}

TEST_CASE("a directory without dumps is refused with what was expected") {
  const TemporaryDirectory directory;
  CHECK(read_anomaly_dumps(directory.path(), {}).error().find("expected the directory anomaly_detected") !=
        std::string::npos);
  CHECK(read_anomaly_dumps(directory / "missing", {}).error().find("No such file") != std::string::npos);
}

}  // namespace

}  // namespace gradmon
