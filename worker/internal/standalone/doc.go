// SPDX-License-Identifier: Apache-2.0

// Package standalone completes SandboxPools without an Env from their template, once, and then reports whether the template has changed.
//
// In: pools that no Env owns, and SandboxTemplates. Out: the fields that a pool leaves out, copied into its spec, with annotations of their
// origin; and a pool.Gate: TemplateConsistent, and whether the pool waits for its template.
//
//	decide.go      the fields that a pool lacks (pure)
//	reconciler.go
//	gate.go
//
// # Rules
//
//   - Each of spec.template, spec.idleImage and spec.runtimes comes whole from the pool or whole from the template; containers are never
//     merged. A pool's template without containers counts as left out. If it has other content it is rejected; because that would be lost:
//     TestDecide.
//   - Labels and annotations that the pool lacks are copied, except those that no pool inherits.
//   - Fields are copied as documents; because this build may not know them: TestNewerFieldsSurvive.
//   - A pool with the annotation template-name is frozen: a change of the template is only reported, and a user's change of the pool stays.
//   - A pool that lost its containers is completed again; because that is how users update it.
//   - A copied template gets no ServiceAccount token unless it says so: TestI14PodsGetNoToken.
//   - If the result has faults (podtemplate.Faults), the pool waits for a change and reports them.
//   - Pools of an Env are not touched: TestEnvsPoolsAreLeftAlone.
//
// # Invariants
//
//   - I3, in spirit: the patch tests the live pool's uid and resourceVersion; because it must overwrite no user's field.
//   - I5, I6: a missing template stops no completed pool.
package standalone
