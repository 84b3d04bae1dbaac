// SPDX-License-Identifier: Apache-2.0

// Package walk tests on kind what a platform team does, from nothing to a fleet. It needs the build tag kind.
//
// A hub of three replicas is installed on an etcd of three members. Clusters join by the line that `atollctl cluster invite` prints, one
// is hosted from the hub's cluster. One apply fills the catalogue. Then, while callers claim: a further cluster joins, changes go out in
// stages and back, a user keeps a field, a cluster is away, a replica is killed, and the hub is upgraded. kubectl and helm reach a
// cluster through the hub.
//
// All commands are the ones of the docs: atollctl, helm and kubectl, with the images and charts of this checkout. Callers with a key try
// again as the API tells them; each of their claims must get one sandbox.
package walk
