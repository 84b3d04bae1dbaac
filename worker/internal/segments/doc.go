// SPDX-License-Identifier: Apache-2.0

// Package segments builds this cluster's segments: what package agent reports of each Env.
//
// In: Envs and pools of the informers' cache, counts of the inventory and of claims, outlooks of the autoscaler. Out: a segment.Segment an
// Env, and which Envs may have changed since they were last taken.
//
//	source.go     Source: changed Envs; gathers what a segment is made of
//	decide.go     Envs into segments (pure)
//	standalone.go pools without an Env
//
// # Rules
//
//   - A segment describes an Env as it is when it is built. Marks are a set of Envs; because a queue of events has no bound (I10).
//   - An Env has no segment only if the synced cache lacks it (I5). One without a local member has one; because the hub sends foreign
//     segments for it.
//   - Without an autoscaler no pool can grow.
//   - A pool without an Env is the one member of an Env of its name, unless that exists. Another controller's pool is Inconsistent.
package segments
