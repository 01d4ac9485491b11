// SPDX-License-Identifier: Apache-2.0
// All benchmarks; each is in the file of its name.
#pragma once

#include "tests/benchmarks/measure/figure.h"

namespace gradmon {

Bench idle_step();           // Monitor::step() while off, and in a step that is not collected
Bench tensor_reads();        // the statistics of one tensor, against a plain read and against torch
Bench parameter_cost();      // the added time of collecting gradients, weights and moments
Bench reading_cost();        // the cost of a record however small its tensor
Bench activation_cost();     // the added time of collecting activations and their gradients
Bench communication_cost();  // the added time of collecting the outputs of collectives
Bench attention_cost();      // the features of attention, against the attention itself
Bench idle_overhead();       // a step with an idle monitor, against a step without a monitor
Bench commit_time();         // from a save or a command until all ranks know the verdict
Bench edit_latency();        // the first step under an edited config
Bench hub_idle();            // processor time and memory of the hub of a job that is off
Bench rows_per_second();     // through the queue, into CSV files and into a database
Bench values_per_second();   // into event files of TensorBoard
Bench conversion_rate();     // from CSV files into event files and a database
Bench hubs_simulated();      // the agreement of thousands of ranks
Bench alert_evaluation();    // the alert rules, per value
Bench replica_cost();        // keep_last and the comparison of ranks, per row

}  // namespace gradmon
