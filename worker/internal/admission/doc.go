// SPDX-License-Identifier: Apache-2.0

// Package admission asks plugins before a pool is made, changed in size or deleted, and before a Pod is made.
//
// What goes in: a Change or a PodRequest. What comes out: a Verdict, how much of it is admitted, and of what is not, why
// and when to ask again. A plugin implements those of the four interfaces that it has an opinion on; Chain asks all that
// do, in order, and admits what every one of them admits.
//
// A Verdict is an answer; an error means that there is none. Nothing is done without an answer, and nothing is counted as
// a refusal that was none: a refusal makes a pool saturated, an error is tried again.
//
// Plugins are asked once, where a change begins: PreCreatePool when a member is rendered (its answer is frozen in the
// member's snapshot, never asked for again), PreUpdatePool when replicas are to grow, PreCreatePod before each Pod. What
// a plugin adds to a pool's labels, annotations or spec in PreCreatePool is in the snapshot as well.
package admission
