// SPDX-License-Identifier: Apache-2.0
// What can be measured; each in the file of its name.
#pragma once

#include "tools/benchmarks/measure/figure.h"

namespace gradmon {

Bench idle_step();           // what step() costs while nothing is asked for, and in a step that is not collected
Bench tensor_reads();        // the numbers of one tensor, against a read and against torch
Bench parameter_cost();      // what collecting gradients, weights and moments adds
Bench activation_cost();     // likewise, activations and their gradients
Bench communication_cost();  // likewise, the outputs of collectives
Bench attention_cost();      // numbers of attention, against the attention itself
Bench idle_overhead();       // a step beside an idle monitor, against one without any
Bench commit_time();         // from a save or a command to the verdict known by all ranks
Bench edit_holds();          // from which step an edit holds
Bench hub_idle();            // what the hub takes beside a job that is off
Bench rows_per_second();     // through the queue, and into CSV files
Bench hubs_simulated();     // an agreement of thousands

}  // namespace gradmon
