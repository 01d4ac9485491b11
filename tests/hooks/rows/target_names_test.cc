// SPDX-License-Identifier: Apache-2.0
#include "hooks/rows/target_names.h"

#include "hooks/rows/target_match.h"
#include "tests/support/catch.h"

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

TEST_CASE("the first matching one of five patterns decides which part of a name is kept") {
  CHECK(squashed_name("module.encoder.layers.1.fc.weight") == "layers.1.fc.weight");
  CHECK(squashed_name("model.layer.3.norm.weight") == "layer.3.norm.weight");
  CHECK(squashed_name("a.layers.0.b.layers.1.w") == "layers.1.w");
  CHECK(squashed_name("module.embedding.word_embeddings.weight") == "embedding.word_embeddings.weight");
  CHECK(squashed_name("m.embeddings.position.weight") == "embeddings.position.weight");
  CHECK(squashed_name("decoder.final_norm.weight") == "final_norm.weight");
  CHECK(squashed_name("m.output_layer.weight") == "output_layer.weight");
  CHECK(squashed_name("m.block.norm1.bias") == "norm1.bias");
}

TEST_CASE("a name that no pattern matches stays as it is") {
  for (const char* name :
       {"layers.0.weight", "fc1.weight", "norm", "a.relayers.0.w", "embedding.weight", ""}) {
    CHECK(squashed_name(name) == name);
  }
}

TEST_CASE("an unwrapped name keeps the parts called module and a plain name does not") {
  CHECK(unwrapped_name("module._orig_mod.fc._fsdp_wrapped_module.weight") == "module.fc.weight");
  CHECK(unwrapped_name("a._checkpoint_wrapped_module.b") == "a.b");
  CHECK(unwrapped_name("my_orig_mod.fc") == "my_orig_mod.fc");
  CHECK(plain_name("module.module.fc.weight.") == "fc.weight");
  CHECK(plain_name("module").empty());
}

using Names = std::vector<std::string>;

Names squashed(const Names& parameters, const Names& modules = {}) {
  std::vector<TargetName> names;
  for (const std::string& name : parameters) names.push_back({0, name});
  for (const std::string& name : modules) names.push_back({0, name, true});
  return record_names(names, Squash::yes);
}

TEST_CASE("all names of a model are squashed") {
  CHECK(squashed({"decoder.layers.0.fc.weight", "embedding.word.weight", "decoder.final_norm.weight",
                  "head.weight"},
                 {"decoder", "decoder.layers", "decoder.layers.0.fc"}) ==
        Names{"layers.0.fc.weight", "embedding.word.weight", "final_norm.weight", "head.weight", "decoder",
              "decoder.layers", "layers.0.fc"});
  CHECK(squashed({"layers.0.norm.weight", "a.layers.1.norm.weight"}) ==
        Names{"layers.0.norm.weight", "layers.1.norm.weight"});
}

TEST_CASE("no name is squashed if two would become one") {
  const Names names{"enc.layers.0.w", "dec.layers.0.w", "dec.layers.1.w"};
  CHECK(squashed(names) == names);
  const Names parameters{"enc.layers.0.w"}, modules{"enc.output", "dec.output"};
  CHECK(squashed(parameters, modules) == Names{"enc.layers.0.w", "enc.output", "dec.output"});
  CHECK(squashed({"layers.0.norm", "q.norm", "a.layers.0.norm"}) ==
        Names{"layers.0.norm", "q.norm", "a.layers.0.norm"});
}

TEST_CASE("no name is squashed if a parameter would keep the part in front that others lose") {
  const Names names{"model.embed_tokens.weight", "model.layers.0.fc.weight"};
  CHECK(squashed(names) == names);
}

TEST_CASE("names of different model chunks do not collide") {
  const std::vector<TargetName> names{{0, "m.layers.0.w"}, {1, "m.layers.0.w"}};
  CHECK(record_names(names, Squash::yes) == Names{"layers.0.w", "layers.0.w"});
}

TEST_CASE("the root module has a name that no part of the model has") {
  CHECK(root_name({{0, "fc.weight"}, {0, "", true}}) == "model");
  CHECK(root_name({{0, "models.weight"}, {1, "model.layers.0.weight"}}) == "root");
  CHECK(root_name({{0, "_orig_mod.model", true}, {0, "root", true}}).empty());
  const auto names = module_names({{"", 0, nullptr}, {"fc", 0, nullptr}});
  CHECK(record_names(names, Squash::no) == Names{"model", "fc"});
}

TEST_CASE("without squashing only wrapper parts are removed") {
  CHECK(record_names({{0, "m._orig_mod.layers.0.w"}}, Squash::no) ==
        std::vector<std::string>{"m.layers.0.w"});
}

std::vector<std::string> names_without_wrappers(const std::vector<std::string>& names) {
  std::vector<WatchedModule> modules;
  for (const std::string& name : names) modules.push_back({name, 0, nullptr});
  std::vector<std::string> kept;
  for (const WatchedModule& module : without_wrappers(modules)) kept.push_back(module.name);
  return kept;
}

TEST_CASE("of a wrapper and the module in it the module is visited") {
  CHECK(names_without_wrappers({"", "0", "0._checkpoint_wrapped_module", "1"}) ==
        Names{"", "0._checkpoint_wrapped_module", "1"});
  CHECK(names_without_wrappers({"", "_fsdp_wrapped_module", "_fsdp_wrapped_module.a",
                                "_fsdp_wrapped_module.a._fsdp_wrapped_module"}) ==
        Names{"_fsdp_wrapped_module", "_fsdp_wrapped_module.a._fsdp_wrapped_module"});
  CHECK(names_without_wrappers({"", "module", "module.a"}) == Names{"", "module", "module.a"});
}

TEST_CASE("a wrapper is visited if the module in it is within compiled code") {
  std::vector<WatchedModule> modules(2);
  const int outer = 0, inner = 0;
  modules[0].identity = &outer;
  modules[1].identity = &inner;
  modules[1].within_compiled = true;
  REQUIRE(without_wrappers(modules).size() == 1);
  CHECK(without_wrappers(modules)[0].identity == &outer);
  modules[0].within_compiled = true;
  CHECK(without_wrappers(modules)[0].identity == &inner);
}

TEST_CASE("of a compiled module the outer one is visited") {
  CHECK(names_without_wrappers({"", "_orig_mod", "_orig_mod.fc"}) == Names{"", "_orig_mod.fc"});
  CHECK(names_without_wrappers({"", "_orig_mod", "_orig_mod._fsdp_wrapped_module"}) == Names{""});
  CHECK(names_without_wrappers({"", "_fsdp_wrapped_module", "_fsdp_wrapped_module._orig_mod"}) ==
        Names{"_fsdp_wrapped_module"});
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

TEST_CASE("modules and parameters are suggested and the closest comes first") {
  const std::vector<TargetName> names{{0, "module.decoder.fc1.weight"}, {1, "module.decoder.fc2.weight"}};
  CHECK(name_suggestions("decodr.fc2", names) == std::vector<std::string>{"decoder.fc2", "decoder.fc1"});
  CHECK(name_suggestions("decodr", names) == std::vector<std::string>{"decoder"});
  CHECK(name_suggestions("something else", names).empty());
  CHECK(name_suggestions("", {}).empty());
}

}  // namespace
}  // namespace gradmon
