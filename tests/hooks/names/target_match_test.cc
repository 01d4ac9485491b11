// SPDX-License-Identifier: Apache-2.0
#include "hooks/names/target_match.h"

#include "control/debian_version.h"
#include "hooks/names/target_names.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

using Indices = std::vector<std::size_t>;

const std::vector<TargetName> kModel{
    {0, "module.embedding.weight"},             // 0
    {0, "module.decoder.layers.1.fc.weight"},   // 1
    {0, "module.decoder.layers.1.fc.bias"},     // 2
    {0, "module.decoder.layers.10.fc.weight"},  // 3
    {1, "module.decoder.layers.1.fc.weight"},   // 4
    {1, "module.decoder.final_norm.weight"},    // 5
};

Indices matched(std::vector<std::string> targets, std::vector<std::string> patterns = {},
                bool invert = false) {
  return match_targets({std::move(targets), std::move(patterns), invert}, kModel).matched;
}

TEST_CASE("no targets and no patterns select everything") {
  CHECK(matched({}) == Indices{0, 1, 2, 3, 4, 5});
  CHECK(matched({}, {}, true) == Indices{0, 1, 2, 3, 4, 5});
  CHECK(match_targets({}, {}).matched.empty());
}

TEST_CASE("a module name selects everything beneath it by whole parts of names") {
  CHECK(matched({"module.decoder.layers.1"}) == Indices{1, 2, 4});
  CHECK(matched({"module.decoder.layers"}) == Indices{1, 2, 3, 4});
  CHECK(matched({"decoder.layers.1.fc.bias"}) == Indices{2});
  CHECK(matched({"decoder.lay"}).empty());
  CHECK(matched({"fc"}).empty());
}

TEST_CASE("targets may be full or squashed and with or without module and stage and wrappers") {
  for (const char* target :
       {"layers.10", "10.fc", "0:layers.10", "decoder.layers.10.fc", "module.decoder.layers.10.",
        "0:module.decoder._fsdp_wrapped_module.layers.10", "_orig_mod.decoder.layers.10"}) {
    INFO(target);
    CHECK(matched({target}) == Indices{3});
  }
  CHECK(matched({"1:layers.1"}) == Indices{4});
  CHECK(matched({"final_norm"}) == Indices{5});
  CHECK(matched({"module"}).size() == kModel.size());
}

TEST_CASE("wrapper parts in the model's names are ignored") {
  const std::vector<TargetName> wrapped{
      {0, "_fsdp_wrapped_module.layers.1._checkpoint_wrapped_module.fc.weight"}};
  CHECK(match_targets({{"layers.1.fc"}, {}, false}, wrapped).matched == Indices{0});
}

TEST_CASE("a pattern matches anywhere in a name and invert selects the other names") {
  CHECK(matched({}, {"bias$", "^embedding"}) == Indices{0, 2});
  CHECK(matched({}, {"decoder.layers.1.fc.weight"}) == Indices{1, 4});
  CHECK(matched({}, {"layers\\.\\d+"}, true) == Indices{0, 5});
  CHECK(matched({}, {"^1:"}) == Indices{4, 5});
}

TEST_CASE("patterns add to the targets and inverted patterns remove from them") {
  CHECK(matched({"embedding"}, {"bias"}) == Indices{0, 2});
  CHECK(matched({"layers.1"}, {"bias"}, true) == Indices{1, 4});
}

TEST_CASE("targets and patterns that match nothing are reported with the closest names") {
  const auto report = match_targets({{"decoder.layer.10", "embedding"}, {"wieght"}, false}, kModel);
  REQUIRE(report.unmatched.size() == 2);
  CHECK(report.unmatched[0].pattern == "decoder.layer.10");
  REQUIRE(!report.unmatched[0].suggestions.empty());
  CHECK(report.unmatched[0].suggestions.front() == "decoder.layers.10");
  CHECK(report.unmatched[1].pattern == "wieght");
  CHECK(report.unmatched[1].error.empty());
}

TEST_CASE("a whole name matches nothing beneath it and without targets nothing matches") {
  const std::vector<TargetName> modules{
      {0, "decoder.layers.1"}, {0, "decoder.layers.1.mlp"}, {1, "decoder.layers.1"}};
  CHECK(match_whole_names({"layers.1"}, modules).matched == Indices{0, 2});
  CHECK(match_whole_names({"1:module.decoder.layers.1"}, modules).matched == Indices{2});
  CHECK(match_whole_names({"decoder"}, modules).matched.empty());
  CHECK(match_whole_names({"decoder"}, modules).unmatched.size() == 1);
  CHECK(match_whole_names({}, modules).matched.empty());
}

TEST_CASE("a target may be the name that rows give to the root module") {
  const auto modules = module_names({{"", 0, nullptr}, {"fc", 0, nullptr}});
  CHECK(match_whole_names({"model"}, modules).matched == Indices{0});
  CHECK(is_named("model", modules[0]));
  CHECK_FALSE(is_named("model", modules[1]));
  const MatchReport report = match_targets({{"model"}, {}, false}, {{0, "fc.weight"}, {0, "fc.bias"}});
  CHECK(report.matched == Indices{0, 1});
  CHECK(report.unmatched.empty());
  CHECK(match_targets({{"model"}, {}, false}, {{0, "model.fc"}, {0, "head"}}).matched == Indices{0});
}

TEST_CASE("an invalid pattern matches nothing and is reported with its error") {
  const auto report = match_targets({{}, {"layers.(1"}, false}, kModel);
  CHECK(report.matched.empty());
  REQUIRE(report.unmatched.size() == 1);
  CHECK(!report.unmatched[0].error.empty());
}

}  // namespace
}  // namespace gradmon
