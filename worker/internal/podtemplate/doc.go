// SPDX-License-Identifier: Apache-2.0

// Package podtemplate defines which fields pools get from a SandboxTemplate, whether Pods can be created from it, and which objects use it.
//
// In: SandboxTemplates, and their pools and Envs. Out: a Template, whose Revision identifies the fields that pools get; faults; and the
// conditions Available and Degraded.
//
//	keys.go        inherited labels and annotations
//	faults.go      why no Pod could be created
//	template.go    Template, and its Cache
//	decide.go      conditions (pure)
//	reconciler.go
//
// # Rules
//
//   - A template is read as a document; because fields newer than this build must reach the pool: TestNewerFieldsSurvive.
//   - I6: pools of an older revision continue, and Degraded reports them. I10: messages name a few users and count the rest: TestDecide.
//   - Equal faults have equal text; because another text is another write: TestFaultsHaveAnOrder, TestFaultsAreBounded.
//   - Status is applied with the template's uid; because an apply would create a deleted template again. The passing of time causes no
//     write.
package podtemplate
