// SPDX-License-Identifier: Apache-2.0
#include "control/wire/wire_values.h"

namespace gradmon {

void write(const Introduction& from, wire::Introduction& to) {
  to.set_launch_id(from.launch_id);
  to.set_rank(from.rank.value);
  to.set_world_size(from.world_size);
  to.set_output_dir(from.output_dir);
  to.set_endpoint(from.endpoint);
  to.set_keys(from.keys);
  to.set_insecure_loopback(from.insecure_loopback);
  if (from.several_hosts) to.set_hosts(*from.several_hosts ? 2 : 1);
  to.set_master(from.master_addr);
  to.set_store(from.has_store);
  if (!from.lead_job) return;
  wire::LeadJob& lead = *to.mutable_lead();
  lead.set_config_path(from.lead_job->config_path);
  lead.set_dynamic(from.lead_job->dynamic);
  lead.set_static_text(from.lead_job->static_text);
  lead.set_torch(from.lead_job->torch);
  for (const std::string& hook : from.lead_job->hooks) lead.add_hooks(hook);
  lead.set_name(from.lead_job->name);
}

Introduction read_introduction(const wire::Introduction& from) {
  Introduction to;
  to.launch_id = from.launch_id();
  to.rank = {from.rank()};
  to.world_size = from.world_size();
  to.output_dir = from.output_dir();
  to.endpoint = from.endpoint();
  to.keys = from.keys();
  to.insecure_loopback = from.insecure_loopback();
  if (from.hosts() != 0) to.several_hosts = from.hosts() > 1;
  to.master_addr = from.master();
  to.has_store = from.store();
  if (!from.has_lead()) return to;
  LeadJob lead;
  lead.config_path = from.lead().config_path();
  lead.dynamic = from.lead().dynamic();
  lead.static_text = from.lead().static_text();
  lead.torch = from.lead().torch();
  lead.hooks.assign(from.lead().hooks().begin(), from.lead().hooks().end());
  lead.name = from.lead().name();
  to.lead_job = std::move(lead);
  return to;
}

}  // namespace gradmon
