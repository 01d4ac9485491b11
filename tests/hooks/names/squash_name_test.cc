// SPDX-License-Identifier: Apache-2.0
#include "hooks/names/squash_name.h"

#include "control/debian_version.h"
#include "hooks/names/target_names.h"
#include GRADMON_CATCH_HEADER

namespace gradmon {
namespace {

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

TEST_CASE("names that would collide keep their full form") {
  const std::vector<TargetName> names{
      {0, "enc.layers.0.w"}, {0, "dec.layers.0.w"}, {0, "dec.layers.1.w"}, {0, "_orig_mod.q.fc"}};
  const std::vector<std::string> expected{"enc.layers.0.w", "dec.layers.0.w", "layers.1.w", "q.fc"};
  CHECK(record_names(names, Squash::yes) == expected);
}

TEST_CASE("names that the config writes in full are not squashed") {
  const std::vector<TargetName> names{
      {0, "enc.layers.0.fc"}, {0, "enc.layers.1.fc"}, {0, "module.layers.2.fc"}, {1, "enc.layers.0.fc"}};
  const auto recorded = [&](const std::vector<std::string>& written) {
    return record_names(names, Squash::yes, written);
  };
  CHECK(recorded({"enc.layers.0.fc", "layers.1.fc", "layers.2.fc"}) ==
        std::vector<std::string>{"enc.layers.0.fc", "layers.1.fc", "layers.2.fc", "enc.layers.0.fc"});
  CHECK(recorded({"1:module.enc.layers.0.fc"}) ==
        std::vector<std::string>{"layers.0.fc", "layers.1.fc", "layers.2.fc", "enc.layers.0.fc"});
  CHECK(recorded({"enc.layers.0"})[0] == "layers.0.fc");  // names the module and not this parameter
}

TEST_CASE("names of different model chunks do not collide") {
  const std::vector<TargetName> names{{0, "m.layers.0.w"}, {1, "m.layers.0.w"}};
  CHECK(record_names(names, Squash::yes) == std::vector<std::string>{"layers.0.w", "layers.0.w"});
}

TEST_CASE("a name is not squashed to the full form that another name keeps") {
  const std::vector<TargetName> names{{0, "layers.0.norm"}, {0, "q.norm"}, {0, "a.layers.0.norm"}};
  const std::vector<std::string> expected{"layers.0.norm", "q.norm", "a.layers.0.norm"};
  CHECK(record_names(names, Squash::yes) == expected);
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

using Names = std::vector<std::string>;

TEST_CASE("of a wrapper and the module in it the module is visited") {
  CHECK(names_without_wrappers({"", "0", "0._checkpoint_wrapped_module", "1"}) ==
        Names{"", "0._checkpoint_wrapped_module", "1"});
  CHECK(names_without_wrappers({"", "_fsdp_wrapped_module", "_fsdp_wrapped_module.a",
                                "_fsdp_wrapped_module.a._fsdp_wrapped_module"}) ==
        Names{"_fsdp_wrapped_module", "_fsdp_wrapped_module.a._fsdp_wrapped_module"});
  CHECK(names_without_wrappers({"", "module", "module.a"}) == Names{"", "module", "module.a"});
}

TEST_CASE("of a compiled module the outer one is visited") {
  CHECK(names_without_wrappers({"", "_orig_mod", "_orig_mod.fc"}) == Names{"", "_orig_mod.fc"});
  CHECK(names_without_wrappers({"", "_orig_mod", "_orig_mod._fsdp_wrapped_module"}) == Names{""});
  CHECK(names_without_wrappers({"", "_fsdp_wrapped_module", "_fsdp_wrapped_module._orig_mod"}) ==
        Names{"_fsdp_wrapped_module"});
}

}  // namespace
}  // namespace gradmon
