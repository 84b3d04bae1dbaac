// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the Kubernetes API of the group agents.navix.sh:
// SandboxEnv, SandboxPool and SandboxTemplate, and every label, annotation,
// finalizer, condition type and condition reason that Atoll writes or reads.
//
// What goes in: nothing but the Kubernetes API packages. The package has no
// clients and takes no decisions, so everything else may import it, the pure
// packages included. What comes out besides the Go types is generated from
// their markers: deepcopy methods, the apply configurations in
// ./applyconfiguration, and the CRD manifests of the worker's chart
// (generate.go has the commands).
//
// # Hazards
//
// Fields keep the JSON names and the omitempty of manifests that already
// exist. omitempty together with a default loses information: a typed struct
// drops `scalingGroup: ""` (no autoscaling), `idleThresholdSeconds: 0` (off)
// and the like, and the API server then fills in the default. Never send one of
// these structs as the body of an Env write; send an apply configuration or raw
// JSON. For the same reason the defaults live in the schema and not in Go code.
//
// Pod templates and runtime configs have no schema. What they hold is kept,
// unknown fields included, as long as it does not pass through the Go types,
// which drop what they do not know. CEL rules cannot see inside. And a template
// that is no Pod template (`containers: 5`) is stored all the same: it fails
// only where it is decoded, and with it the whole list that it is in, so a
// typed informer stops for every object. Readers of typed lists must expect
// that.
//
// A member without a config has no scaling group. One with a config has the
// group "default" unless it says otherwise.
//
// # What the rules protect
//
// Rules that a user's mistake can break are refused by the API server with the
// field named. Rules over lists have a cost budget, hence the ceilings of 256
// clusters, 32 members a cluster and 32 groups. Rules that one writer could
// break for another (members of a segment it does not own come and go) compare
// with the old object and stay silent about what the request did not change.
//
// +kubebuilder:object:generate=true
// +kubebuilder:ac:generate=true
// +kubebuilder:ac:output:package="applyconfiguration"
// +groupName=agents.navix.sh
package v1alpha1
