// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// SandboxPoolConditionTemplateConsistent is on pools without an Env that name a
// template: the pool has what the template gave it, and the template has not
// changed since. Its reasons are those of an Env's TemplateConsistent.
const SandboxPoolConditionTemplateConsistent = "TemplateConsistent"

// Condition types of a SandboxTemplate.
const (
	// SandboxTemplateConditionAvailable: pools can be made from the template. Its
	// message tells who uses it, and at which revision.
	SandboxTemplateConditionAvailable = "Available"
	// SandboxTemplateConditionDegraded: the template has faults, or pools that it
	// made go on with an older revision of it.
	SandboxTemplateConditionDegraded = "Degraded"
)

// Reasons of templates, and of pools that wait for one. Validated is one of
// Available.
const (
	// ReasonTemplateInvalid: no Pods can be made from the template as it is.
	ReasonTemplateInvalid ConditionReason = "TemplateInvalid"
	// ReasonTemplateCopied: a pool without an Env got its template's fields.
	ReasonTemplateCopied ConditionReason = "TemplateCopied"
	// ReasonOlderRevisionsInUse: pools were made from an older revision.
	ReasonOlderRevisionsInUse ConditionReason = "OlderRevisionsInUse"
	// ReasonTemplateDeleted: the template is being deleted while pools name it.
	ReasonTemplateDeleted ConditionReason = "TemplateDeleted"
	// ReasonAllCurrent: every pool that names the template has its present revision.
	ReasonAllCurrent ConditionReason = "AllCurrent"
)

// AdoptedPoolAnnotationKey is on an Env that was made for a pool: the uid of that
// pool. It tells such an Env from one of the same name that a user wrote.
const AdoptedPoolAnnotationKey = "agentbox.navix.sh/adopted-pool"
