// SPDX-License-Identifier: Apache-2.0

// Package templates says of every SandboxTemplate whether pools can be made from it, and who uses it.
//
// What goes in: SandboxTemplates as documents, and the pools and Envs that name them, through the manager's cache. What
// comes out: the template's conditions Available and Degraded.
//
//	gather ─▶ decide ─▶ report
//
// Available is False with TemplateInvalid when env.Faults, by which members and pools without an Env are judged as well, finds
// something: a Pod template that is none, containers without an image, runtimes that no Pod could have. Degraded is True for such a template, for one that is being deleted while pools
// name it, and for one of which pools have an older revision: they go on with it, and their messages say how to go over
// (I6: a template ends nothing that runs). The messages name a few users and count the rest (I10).
//
// Status is applied as one document, with the template's uid: an apply to a template that is gone would create it again.
// It is written when it says something new, never because time has passed.
//
// # Hazards
//
// A template may be anything: the schema knows nothing of Pod templates. It is read as a document here, and decoded only
// to find out whether it can be.
package templates
