// SPDX-License-Identifier: Apache-2.0
// The short form of parameter and module names. Strings in, strings out.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gradmon {

// A parameter's (or module's) name as the model lists it, and its model chunk.
struct TargetName {
  int vpp_stage = 0;
  std::string name;
};

// Without the parts that FSDP, torch.compile and checkpointing put in:
// `_fsdp_wrapped_module`, `_orig_mod`, `_checkpoint_wrapped_module`.
std::string unwrapped_name(std::string_view name);

// Also without every part `module`, and without empty parts: what names are
// compared by.
std::string plain_name(std::string_view name);

// A target of the config likewise, whose leading `{vpp}:` stays.
std::string plain_target(std::string_view target);
std::string_view without_stage(std::string_view target);

// What the first of these that matches holds in its group, else the name as it
// is: `^.*\.(layers?\..*)`, `^.*\.(embeddings?\..*)`, `^.*\.(final.*)`,
// `^.*\.(output.*)`, `^.*\.(norm.*)`.
std::string squashed_name(std::string_view name);

// What records call the names given, in their order: unwrapped, and with
// Squash::yes squashed where no other name of the same chunk would end up the
// same (then both stay unwrapped only).
// Those that stand in full, and not squashed, among `written`, targets of a config, stay so, too.
enum class Squash : bool { no, yes };
std::vector<std::string> record_names(const std::vector<TargetName>& names, Squash squash,
                                      const std::vector<std::string>& written = {});

}  // namespace gradmon
