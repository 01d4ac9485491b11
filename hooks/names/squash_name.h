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
  bool module = false;  // false: a parameter
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

// The names used in records, one for each of `names`, in their order: unwrapped, and with Squash::yes also
// squashed. A name is not squashed if another name of its chunk would become the same (neither is then),
// or if `written` (targets of a config) contains its full form and not its squashed form.
enum class Squash : bool { no, yes };
std::vector<std::string> record_names(const std::vector<TargetName>& names, Squash squash,
                                      const std::vector<std::string>& written = {});

}  // namespace gradmon
