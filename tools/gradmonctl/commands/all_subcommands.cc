// SPDX-License-Identifier: Apache-2.0
#include "tools/gradmonctl/commands/commands.h"

namespace gradmon {

// Each function is defined in its command's .cc file; those that Python carries out, in read_commands.cc.
Subcommand status_subcommand();
Subcommand watch_subcommand();
Subcommand jobs_subcommand();
Subcommand on_subcommand();
Subcommand off_subcommand();
Subcommand set_subcommand();
Subcommand cancel_subcommand();
Subcommand evict_subcommand();
Subcommand get_subcommand();
Subcommand history_subcommand();
Subcommand alerts_subcommand();
Subcommand targets_subcommand();
Subcommand query_subcommand();
Subcommand init_subcommand();
Subcommand validate_subcommand();
Subcommand import_subcommand();
Subcommand doctor_subcommand();
Subcommand schema_subcommand();
Subcommand keygen_subcommand();
Subcommand run_subcommand();
Subcommand analyse_subcommand();
Subcommand convert_subcommand();
Subcommand gc_subcommand();

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
