// SPDX-License-Identifier: Apache-2.0

// Package autoscale carries out, in one cluster, what pkg/scalepolicy decides about the scaling groups of its Envs.
//
// What goes in: Envs, pools and Pods from the manager's cache, the live queues of the claim service, and what Pods the
// API server refused. What comes out: replicas of members in Envs, marks on idle Pods, pools' status.autoscaling, the
// annotation last-sandbox-create-time, and an Outlook for the agent: who can grow, and who is saturated for how long.
//
//	gather ─▶ scalepolicy.Decide ─▶ act (ask admission, write the Env, mark Pods) ─▶ report (status, events, metrics)
//
// It runs on the leader. An Env is looked at when one of its pools' queues or idle Pods changed, at events of Env and
// pools, when time alone changes a decision, and every 10 s; not more often than every quarter of a second, but for the
// first claim that waits.
//
// # Who deletes Pods
//
// The pool's reconciler, and nobody else. Here idle Pods are marked, and replicas lowered once their window is over; the
// pool then has too many Pods, and deletes those that are marked first. A claim takes the mark off in its own write. Was it
// faster than the pool, there are more Pods without a mark than replicas, and replicas are raised again; the pool waits ten
// seconds for that before it chooses a Pod itself.
//
// # Who writes replicas
//
// SetReplicas of package env tests the value that was decided from. Nothing is decided about a member whose pool does not
// have the Env's replicas yet: they may be somebody else's, which package env puts right, or lets stand where somebody
// repeats it (replicas.Contests). One whose pool is away, or kept by another controller, counts in the group's limits, and nothing is
// decided about it. A restart loses no cooldown, because they are in the pool's status, and decides nothing from queues
// before claims are served.
//
// # Invariants
//
// I6, I9: in pkg/scalepolicy. I10: memory is bounded by the pools of enabled groups and their idle Pods. I11: times are
// measured on the monotonic clock, from the API server's time at the start of this process. What is in a status is of that
// clock, so a step of the API server's clock is not seen until the next start, where a time in the future becomes that of the
// start, is written so, and runs down from there.
// Marks are timed from when this process first saw them: late by one window, never early. How long a Pod has been idle
// is durable: the API server's time is on the Pod, and compared once with the same clock.
//
// # What the hub hears
//
// A member can grow when a claim that waits would make it: below its ceilings, not saturated, and with no Pod that should
// have been ready two minutes ago, or that it lacks because it is refused. It is saturated for as long as the last refusal
// holds it back; the claim queue refuses whoever would wait longer than that for a pool without Pods.
//
// # Writes at rest
//
// None. idleZeroSince and observedGeneration alone are written only once they have lasted 5 s, since idle Pods of a busy
// pool come and go; this process knows them better. The annotation is written every 5 s at most, and only if somebody asked
// for a sandbox since; only in enabled groups, since nobody else reads it. Pods that stay refused are tried on, and the same
// refusal is written anew only while a claim waits.
//
// # Departures
//
// Pools are decided about per Env, not each by its own reconciler, since groups share ceilings. An answer of admission is
// asked for as a probe while the greatest number is looked for, and once more, not as a probe, for what is then written.
package autoscale
