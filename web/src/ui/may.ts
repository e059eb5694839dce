// What the user may do. The API decides; this only avoids offering what it would refuse.
import { useQuery } from "@tanstack/react-query";

import type { Schemas } from "../api/client";
import { meQuery } from "../api/queries";

export interface May {
  submit: boolean;
  administer: boolean;
  change: (job: { user: string; vc: string }) => boolean;
}

export function useMay(): May {
  return mayOf(useQuery(meQuery).data);
}

export function mayOf(me: Schemas["Me"] | undefined): May {
  const administer = me?.role === "admin";
  const isOwner = me?.role === "owner";
  const submit = administer || isOwner || me?.role === "user";
  const isListed = (vc: string) => me?.vcs.includes(vc) === true;
  const owns = (job: { user: string; vc: string }) =>
    isOwner ? isListed(job.vc) : submit && job.user === me?.user && (me?.vcs.length === 0 || isListed(job.vc));
  return { submit, administer, change: (job) => administer || owns(job) };
}
