// SPDX-License-Identifier: Apache-2.0

// Package podtemplate says what a SandboxTemplate gives to pools, whether Pods can be made from it, and who uses it.
//
// In: SandboxTemplates as documents, and the pools and Envs that name them, from the manager's cache. Out: a Template, whose
// Revision names what pools get of it; the faults for which no Pod could be made; and the template's conditions Available and
// Degraded.
//
//	keys.go        which labels and annotations pools inherit
//	faults.go      why no Pod could be made
//	template.go    Template, and a Cache that hashes each version once
//	decide.go      conditions (pure)
//	reconciler.go  gather, decide, report
//
// # Rules
//
//   - A template is read as a document: its schema knows nothing of Pod templates, and fields newer than this build reach the
//     pool: TestNewerFieldsSurvive.
//   - A template ends nothing that runs (I6). Pools of an older revision go on, and Degraded says so: TestDecide.
//   - Messages name a few users and count the rest (I10): TestDecide. The same faults give the same text, since another text
//     is another write: TestFaultsHaveAnOrder, TestFaultsAreBounded.
//   - Status is applied with the template's uid: an apply to a template that is gone would create it again. It is written when
//     it says something new, never because time has passed.
package podtemplate
