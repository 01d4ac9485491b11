// SPDX-License-Identifier: Apache-2.0
#include "writers/alerts/anomaly_dump.h"

#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "tests/support/catch.h"
#include "tests/support/resource_limit.h"
#include "tests/support/temporary_directory.h"
#include "tests/writers/files_in.h"

using namespace gradmon;

namespace {

std::size_t events_in(const std::filesystem::path& file) {
  return nlohmann::json::parse(read_text(file)).size();
}

using Json = nlohmann::ordered_json;
using Names = std::set<std::string>;

const std::vector<int> kMates{0, 1};

// A fixture of TEST_CASE_METHOD.
struct ScratchFile {
  const TemporaryDirectory scratch;
  const std::filesystem::path file = scratch / "anomaly.json";
};

Alert event_of(std::int64_t step, const std::string& op = "norm", double value = 27.77) {
  Alert event;
  event.rule = "AnomalyTurbulence";
  event.step = step;
  event.pp_stage = 1;
  event.call_id = 112;
  event.tag_name = "0:1.self_attention.core_attention_flash_0/rank0/input_grad";
  event.op = op;
  event.value = value;
  event.history_mean = 5.55;
  event.message = alert_message(event);
  return event;
}

std::string key(std::int64_t step, const std::string& op = "norm") { return anomaly_key(event_of(step, op)); }

std::vector<std::string> keys_of(const std::filesystem::path& file) {
  std::vector<std::string> keys;
  const Json events = Json::parse(read_text(file));
  for (const auto& [name, entry] : events.items()) keys.push_back(name);
  return keys;
}

Extended extend(const std::filesystem::path& file, const std::vector<Alert>& events,
                const AnomalyFileLimits& limits = {}) {
  const auto extended = extend_anomaly_file(file, events, kMates, limits);
  INFO((extended ? "" : extended.error()));
  REQUIRE(extended.has_value());
  return *extended;
}

}  // namespace

TEST_CASE("the depth of a JSON text is that of its brackets outside of strings") {
  CHECK_FALSE(is_nested_deeper("", 0));
  CHECK_FALSE(is_nested_deeper("7", 0));
  CHECK(is_nested_deeper("[]", 0));
  CHECK_FALSE(is_nested_deeper(R"({"a": [1], "b": [2]})", 2));
  CHECK(is_nested_deeper(R"({"a": [1, {}]})", 2));
  CHECK_FALSE(is_nested_deeper(R"(["[[[[", "\"[[[[", "\\", []])", 2));
  CHECK(is_nested_deeper(R"(["\\", [[]]])", 2));
}

TEST_CASE("a torn text is as deep as far as it goes") {
  CHECK(is_nested_deeper(std::string(200'000, '['), 100));
  CHECK_FALSE(is_nested_deeper(std::string(100, '['), 100));
  CHECK_FALSE(is_nested_deeper("{\"a\": \"[[[[\\", 1));
}

TEST_CASE("events wait while the disk is full and are written when it has room again") {
  const TemporaryDirectory scratch;
  bool full = true;
  const auto dump = std::make_shared<AnomalyDump>(
      [&]() -> tl::expected<std::filesystem::path, std::string> {
        if (full) return tl::unexpected(std::string("no space left"));
        return scratch.path();
      },
      kMates);
  auto file = dump->add({event_of(1)});
  REQUIRE(file);
  CHECK(file->write().error() == "no space left");
  CHECK_FALSE(dump->add({event_of(2), event_of(3)}));  // the first write is tried again
  CHECK_FALSE(file->write());
  full = false;
  CHECK(file->write());
  CHECK(events_in(scratch / "anomaly.json") == 3);
  file.reset();
  file = dump->add({event_of(4)});
  REQUIRE(file);
  CHECK(file->write());
  CHECK(events_in(scratch / "anomaly.json") == 4);
  CHECK(dump->given_up() == 0);
}

TEST_CASE("a write that was given up is asked for again with the next event") {
  const TemporaryDirectory scratch;
  const auto dump = std::make_shared<AnomalyDump>(
      [&]() -> tl::expected<std::filesystem::path, std::string> { return scratch.path(); }, kMates);
  CHECK(dump->add({event_of(1)}));
  const auto file = dump->add({event_of(2)});
  REQUIRE(file);
  CHECK(file->write());
  CHECK(events_in(scratch / "anomaly.json") == 2);
}

TEST_CASE("a bounded number of events waits, and a full file is counted") {
  const TemporaryDirectory scratch;
  const auto dump = std::make_shared<AnomalyDump>(
      [&]() -> tl::expected<std::filesystem::path, std::string> { return scratch.path(); }, kMates,
      AnomalyFileLimits{3, 1 << 20});
  const auto file = dump->add({event_of(1), event_of(2)});
  REQUIRE(file);
  CHECK_FALSE(dump->add({event_of(3), event_of(4), event_of(5)}));
  CHECK(dump->given_up() == 2);
  CHECK(file->write());
  CHECK_FALSE(dump->add({event_of(6)}));
  CHECK(file->write());
  CHECK(dump->given_up() == 3);
  CHECK(events_in(scratch / "anomaly.json") == 3);
}

TEST_CASE("a dump has the form that msprobe documents") {
  const TemporaryDirectory scratch;
  extend(scratch / "anomaly.json", {event_of(1, "min")});
  CHECK(read_text(scratch / "anomaly.json") == R"({
    "0:1.self_attention.core_attention_flash_0/rank0/input_grad_step_1_call_112_min": {
        "rank": 0,
        "step": 1,
        "micro_step": 0,
        "pp_stage": 1,
        "vpp_stage": 0,
        "call_id": 112,
        "tag_name": "0:1.self_attention.core_attention_flash_0/rank0/input_grad",
        "message": "Rule AnomalyTurbulence reports anomaly signal in ('0:1.self_attention.core_attention_flash_0/rank0/input_grad', 'min') at step 1, current value 27.77, history mean 5.55.",
        "group_mates": [
            0,
            1
        ]
    }
}
)");
  struct stat status {};
  REQUIRE(::stat((scratch / "anomaly.json").c_str(), &status) == 0);
  CHECK((status.st_mode & 0777U & ~0640U) == 0);
}

TEST_CASE_METHOD(ScratchFile, "events are added to those of an earlier dump") {
  write_text(file, R"({"a_step_0_call_1": {"rank": 0, "step": 0, "message": "msprobe's"}})");
  extend(file, {event_of(1), event_of(1, "min")});
  extend(file, {event_of(2)});
  CHECK(keys_of(file) == std::vector<std::string>{"a_step_0_call_1", key(1), key(1, "min"), key(2)});
  CHECK(Json::parse(read_text(file))["a_step_0_call_1"]["message"] == "msprobe's");
  CHECK(files_in(scratch.path()) == Names{"anomaly.json"});
}

TEST_CASE_METHOD(ScratchFile, "the same event is written once, and another one with its key beside it") {
  extend(file, {event_of(1)});
  extend(file, {event_of(1), event_of(1, "norm", 30)});
  extend(file, {event_of(1, "norm", 31), event_of(1, "norm", 30)});
  CHECK(keys_of(file) == std::vector<std::string>{key(1), key(1) + "#2", key(1) + "#3"});
}

TEST_CASE("a file that is no dump is kept aside and never overwritten") {
  const std::string deep = "{\"a\": " + std::string(100'000, '[') + std::string(100'000, ']') + "}";
  for (const std::string& broken :
       {std::string("{\"a\": {\"rank\": 0"), std::string("[]"), std::string(), deep}) {
    const TemporaryDirectory scratch;
    const auto file = scratch / "anomaly.json";
    write_text(file, broken);
    CHECK(extend(file, {event_of(1)}).kept_aside == file.string() + ".broken");
    CHECK(read_text(file.string() + ".broken") == broken);
    CHECK(keys_of(file) == std::vector<std::string>{key(1)});
    write_text(file, "again");
    CHECK(extend(file, {event_of(2)}).kept_aside == file.string() + ".broken-2");
    CHECK(read_text(file.string() + ".broken-2") == "again");
    CHECK(files_in(scratch.path()) == Names{"anomaly.json", "anomaly.json.broken", "anomaly.json.broken-2"});
  }
}

TEST_CASE("links and directories in the place of a dump are kept aside") {
  const TemporaryDirectory scratch;
  write_text(scratch / "other.txt", "text");
  std::filesystem::create_symlink(scratch / "other.txt", scratch / "anomaly.json");
  extend(scratch / "anomaly.json", {event_of(1)});
  CHECK(read_text(scratch / "other.txt") == "text");
  std::filesystem::remove(scratch / "anomaly.json");
  std::filesystem::create_directory(scratch / "anomaly.json");
  extend(scratch / "anomaly.json", {event_of(1)});
  CHECK(keys_of(scratch / "anomaly.json").size() == 1);
}

TEST_CASE_METHOD(ScratchFile, "a full file keeps what it has and takes no more") {
  const AnomalyFileLimits three{3, 1 << 20};
  CHECK(extend(file, {event_of(1), event_of(2)}, three).left_out == 0);
  CHECK(extend(file, {event_of(3), event_of(4), event_of(5)}, three).left_out == 2);
  CHECK(keys_of(file) == std::vector<std::string>{key(1), key(2), key(3)});
  const std::string before = read_text(file);
  CHECK(extend(file, {event_of(6)}, three).left_out == 1);
  CHECK(extend(file, {event_of(6)}, {100, before.size()}).left_out == 1);
  CHECK(extend(file, {event_of(6)}, {100, before.size() + 100}).left_out == 1);
  CHECK(read_text(file) == before);
}

TEST_CASE_METHOD(ScratchFile, "a dump stays below its limit of bytes") {
  const AnomalyFileLimits limits{4096, 20'000};
  std::size_t left_out = 0;
  for (std::int64_t step = 0; step < 100; ++step) left_out += extend(file, {event_of(step)}, limits).left_out;
  CHECK(left_out > 0);
  CHECK(read_text(file).size() <= limits.bytes);
  CHECK(keys_of(file).size() + left_out == 100);
}

TEST_CASE("names that are not UTF-8 are written with replacement characters") {
  const TemporaryDirectory scratch;
  Alert event = event_of(1);
  event.tag_name = "0:\xff/rank0/actv";
  extend(scratch / "anomaly.json", {event});
  CHECK(keys_of(scratch / "anomaly.json") ==
        std::vector<std::string>{"0:\xEF\xBF\xBD/rank0/actv_step_1_call_112_norm"});
}

TEST_CASE_METHOD(ScratchFile, "an error leaves the file as it was and names it") {
  CHECK(extend_anomaly_file(scratch / "missing" / "anomaly.json", {event_of(1)}, kMates)
            .error()
            .find("missing") != std::string::npos);
  for (const std::string& before : {std::string("no dump"), std::string("{}")}) {
    write_text(file, before);
    const auto extended = [&] {
      const FileSizeLimit full(64);
      return extend_anomaly_file(file, {event_of(1)}, kMates);
    }();
    REQUIRE_FALSE(extended.has_value());
    CHECK(extended.error() == "cannot write " + file.string() + ".new: File too large");
    CHECK(read_text(file) == before);
    CHECK(files_in(scratch.path()) == Names{"anomaly.json"});
  }
}
