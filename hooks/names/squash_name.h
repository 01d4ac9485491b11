// SPDX-License-Identifier: Apache-2.0
// The forms of parameter and module names: full, plain, squashed. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gradmon {

// The name of a parameter or module as the model lists it, and the number of its model chunk.
struct TargetName {
  int vpp_stage = 0;
  std::string name;
  bool module = false;         // false: a parameter
  std::string root_name = {};  // of the root module, whose name is empty: root_name(); "" of all others
};

// `name` without the parts that FSDP, torch.compile and checkpointing insert:
// `_fsdp_wrapped_module`, `_orig_mod`, `_checkpoint_wrapped_module`.
std::string unwrapped_name(std::string_view name);

// unwrapped_name() without parts that are `module` or empty. Names are compared in this form.
std::string plain_name(std::string_view name);

// plain_name() of a target of the config; a leading `{vpp}:` (model chunk) stays.
std::string plain_target(std::string_view target);
// `target` without a leading `{vpp}:`.
std::string_view without_stage(std::string_view target);

// The group of the first of these patterns that matches, or `name` if none does:
// `^.*\.(layers?\..*)`, `^.*\.(embeddings?\..*)`, `^.*\.(final.*)`, `^.*\.(output.*)`, `^.*\.(norm.*)`.
std::string squashed_name(std::string_view name);

// The root module's name in rows: the first of `model` and `root` that is no part of the model; "" if both
// are.
std::string root_name(const std::vector<TargetName>& names);

// The names used in records, one for each of `names` (all that the model has), in their order: unwrapped, and
// with Squash::yes all squashed or none. None are if two names of a chunk would become one, or if a parameter
// deeper than its module has no short form: its neighbours would lose the part in front that it keeps.
enum class Squash : bool { no, yes };
std::vector<std::string> record_names(const std::vector<TargetName>& names, Squash squash);

}  // namespace gradmon
