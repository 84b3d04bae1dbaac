// SPDX-License-Identifier: Apache-2.0

// Package standalone completes SandboxPools without an Env from their template, once, and then reports whether the template has
// changed since.
//
// In: pools that no Env owns, and SandboxTemplates, from the manager's cache. Out: the fields that such a pool leaves out, copied
// into its spec, with annotations that record their origin; and a gate (pool.Gate) for the pool reconciler, the only writer of a
// pool's status: the condition TemplateConsistent, and whether the pool must wait for its template before it creates Pods.
//
//	decide.go      what a pool is missing (pure)
//	reconciler.go  gather, decide, act
//	gate.go        gather, decide, gate
//
// # Rules
//
//   - The pool's fields win over the template's, field by field: spec.template, spec.idleImage, spec.runtimes. A field that the
//     pool sets is used whole; one that it leaves out is copied from the template. The containers of two Pod templates are never
//     merged. A pool's template without containers counts as left out; if it has any other content it is refused; because that
//     content would be lost. TestDecide.
//   - A label or annotation of the template is copied if the pool lacks the key, except for those that no pool inherits.
//   - Fields are copied as documents, so that fields which this build does not know are kept: TestNewerFieldsSurvive.
//   - A pool with the annotation template-name is complete and frozen. A later change of the template is reported and changes
//     nothing. A user's change of the spec stays; because only the user defines such a pool.
//   - A pool that has lost its containers, by `kubectl replace` or on purpose, is completed again from the current template. That
//     is how a pool is brought up to date.
//   - A template is copied without a ServiceAccount token, unless it says otherwise: TestI14PodsGetNoToken.
//   - Nothing is copied if pool and template together are no valid Pod template (podtemplate.Faults). The pool waits, reports the
//     faults, and is tried again when the template or the pool changes.
//   - Pools of an Env are not touched: TestEnvsPoolsAreLeftAlone.
//
// # Invariants
//
//   - I3, in spirit: the write is one JSON patch that tests uid and resourceVersion of the live pool that it was made from. It
//     never overwrites a field that a user has just set, nor changes a new pool of the same name.
//   - I5, I6: a missing or deleted template ends nothing. Completed pools keep their Pods and create new ones.
package standalone
