// SPDX-License-Identifier: Apache-2.0

// Package standalone gives SandboxPools without an Env what their template has for them, once, and says afterwards whether the
// template is still the one that they were made from.
//
// What goes in: pools that no Env owns, and SandboxTemplates, through the manager's cache. What comes out: the fields that
// such a pool leaves out, copied into its spec, with annotations that tell from where; and for the pool reconciler, which
// alone writes a pool's status, the pool's gate (pool.Gate): the condition TemplateConsistent, and whether it has to
// wait for its template before it makes Pods.
//
//	gather ─▶ decide ─▶ act        (reconciler.go)
//	gather ─▶ decide ─▶ Gate   (gate.go)
//
// # Inline goes before the template
//
// Field by field, where the fields are those that a template and a pool have in common: spec.template, spec.idleImage,
// spec.runtimes. A field that the pool has is the pool's, whole; one that it leaves out is the template's. Containers of two
// Pod templates are never mixed: a template without containers is left out, unless something else is in it, which is
// refused, because it would be lost. Labels and annotations of the template go onto the pool where the pool has none of the
// key, but for those that no pool inherits.
//
// Fields are copied as documents, so that those which this build does not know get there.
//
// # Frozen
//
// A pool whose annotation template-name is set has been given its fields. What the template becomes afterwards shows, and
// changes nothing. A pool that has lost its containers, to `kubectl replace` of its manifest or on purpose, is given them
// again from the template as it is then: that is how a pool is brought up to date. What a user has changed in the
// pool's spec is the user's; no drift is repaired, since nobody but the user says what such a pool is.
//
// A pool is given nothing if its fields and the template's together are no Pod template (podtemplate.Faults). It waits, says
// so, and goes on when template or pool have changed.
//
// # Invariants
//
// The write is one JSON patch that tests uid and resourceVersion of the live pool that it was made from, so a field that a
// user has just filled in is never overwritten (I3 in spirit), and a pool that is made anew under the name gets nothing that
// was meant for the one before. A template that is missing, or goes, ends nothing (I5, I6): pools that have their fields
// keep their Pods and make new ones.
package standalone
