// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// SandboxEnvOwnerKind is the kind in owner references to a SandboxEnv.
const SandboxEnvOwnerKind = "SandboxEnv"

// ImagePullSecretNamePrefix goes before the name of an Env (or of a pool
// without one) to make the name of its dockerconfigjson Secret.
const ImagePullSecretNamePrefix = "ips-"

// EnvImagePullSecretName is the name of the dockerconfigjson Secret of an Env,
// which every member pool's Pod template refers to.
func EnvImagePullSecretName(envName string) string {
	return ImagePullSecretNamePrefix + envName
}

// HasEnvOwner reports whether obj has an owner reference to a SandboxEnv,
// controlling or not: adopted pools carry one that is not. Any version of the
// group counts, so that a later version of the API keeps its pools.
func HasEnvOwner(obj metav1.Object) bool {
	for _, ref := range obj.GetOwnerReferences() {
		gv, err := schema.ParseGroupVersion(ref.APIVersion)
		if err == nil && gv.Group == GroupVersion.Group && ref.Kind == SandboxEnvOwnerKind {
			return true
		}
	}
	return false
}

// MembersOf returns the members that the Env's spec has for a cluster.
func (e *SandboxEnv) MembersOf(clusterID string) (members []*EnvClusterMember) {
	for i := range e.Spec.Clusters {
		if cluster := &e.Spec.Clusters[i]; cluster.ClusterID == clusterID {
			for j := range cluster.Members {
				members = append(members, &cluster.Members[j])
			}
		}
	}
	return members
}

// ScalingGroup returns the Env's autoscaling group of a name; nil if there is none.
func (e *SandboxEnv) ScalingGroup(name string) *EnvAutoscalingGroup {
	if name == "" || e.Spec.Autoscaling == nil {
		return nil
	}
	for i := range e.Spec.Autoscaling.Groups {
		if g := &e.Spec.Autoscaling.Groups[i]; g.Name == name {
			return g
		}
	}
	return nil
}
