// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/commands/commands.h"

#include <memory>

namespace gradmon {

// Each function is defined in its command's .cc file; those that Python carries out, in read_commands.cc.
std::unique_ptr<Subcommand> status_subcommand();
std::unique_ptr<Subcommand> watch_subcommand();
std::unique_ptr<Subcommand> jobs_subcommand();
std::unique_ptr<Subcommand> on_subcommand();
std::unique_ptr<Subcommand> off_subcommand();
std::unique_ptr<Subcommand> set_subcommand();
std::unique_ptr<Subcommand> cancel_subcommand();
std::unique_ptr<Subcommand> evict_subcommand();
std::unique_ptr<Subcommand> get_subcommand();
std::unique_ptr<Subcommand> history_subcommand();
std::unique_ptr<Subcommand> alerts_subcommand();
std::unique_ptr<Subcommand> targets_subcommand();
std::unique_ptr<Subcommand> query_subcommand();
std::unique_ptr<Subcommand> init_subcommand();
std::unique_ptr<Subcommand> validate_subcommand();
std::unique_ptr<Subcommand> import_subcommand();
std::unique_ptr<Subcommand> doctor_subcommand();
std::unique_ptr<Subcommand> schema_subcommand();
std::unique_ptr<Subcommand> keygen_subcommand();
std::unique_ptr<Subcommand> run_subcommand();
std::unique_ptr<Subcommand> analyse_subcommand();
std::unique_ptr<Subcommand> convert_subcommand();
std::unique_ptr<Subcommand> gc_subcommand();

Subcommands all_subcommands() {
  Subcommands all;
  for (const auto make :
       {status_subcommand,  watch_subcommand,   jobs_subcommand,   on_subcommand,     off_subcommand,
        set_subcommand,     cancel_subcommand,  evict_subcommand,  get_subcommand,    history_subcommand,
        alerts_subcommand,  targets_subcommand, query_subcommand,  init_subcommand,   validate_subcommand,
        import_subcommand,  doctor_subcommand,  schema_subcommand, keygen_subcommand, run_subcommand,
        analyse_subcommand, convert_subcommand, gc_subcommand})
    all.push_back(make());
  return all;
}

}  // namespace gradmon
