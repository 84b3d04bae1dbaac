// SPDX-License-Identifier: Apache-2.0

// Package podtemplate defines what pools get from a SandboxTemplate, whether Pods can be created from it, and which objects use
// it.
//
// In: SandboxTemplates as documents, and the pools and Envs that name them, from the manager's cache. Out: a Template, whose
// Revision identifies what pools get; the faults for which no Pod could be created; and the template's conditions Available and
// Degraded.
//
//	keys.go        which labels and annotations pools inherit
//	faults.go      why no Pod could be created
//	template.go    Template, and a Cache that hashes each version once
//	decide.go      conditions (pure)
//	reconciler.go  gather, decide, report
//
// # Rules
//
//   - A template is read as a document; because its schema does not describe Pod templates, and fields newer than this build must
//     reach the pool: TestNewerFieldsSurvive.
//   - I6: a template ends nothing that runs. Pools of an older revision continue, and Degraded reports them: TestDecide.
//   - I10: messages name a few users and count the rest: TestDecide.
//   - The same faults have the same text; because another text is another write: TestFaultsHaveAnOrder, TestFaultsAreBounded.
//   - Status is applied with the template's uid; because otherwise an apply to a deleted template would create it again. It is
//     written when its content changes, never because time has passed.
package podtemplate
