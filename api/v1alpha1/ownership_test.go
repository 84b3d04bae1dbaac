// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"navix.sh/atoll/api/v1alpha1"
)

func TestEnvImagePullSecretName(t *testing.T) {
	if got, want := v1alpha1.EnvImagePullSecretName("swe-bench"), "ips-swe-bench"; got != want {
		t.Errorf("EnvImagePullSecretName() = %q, want %q", got, want)
	}
}

func TestHasEnvOwner(t *testing.T) {
	tests := []struct {
		name   string
		owners []metav1.OwnerReference
		want   bool
	}{
		{name: "no owner"},
		{name: "an Env that does not control it",
			owners: []metav1.OwnerReference{{APIVersion: "agents.navix.sh/v1alpha1", Kind: "SandboxEnv", Name: "e"}}, want: true},
		{
			name: "an Env that controls it",
			owners: []metav1.OwnerReference{
				{APIVersion: "agents.navix.sh/v1alpha1", Kind: "SandboxEnv", Name: "e", Controller: ptr.To(true)},
			},
			want: true,
		},
		{name: "an Env of a later version",
			owners: []metav1.OwnerReference{{APIVersion: "agents.navix.sh/v1beta1", Kind: "SandboxEnv", Name: "e"}}, want: true},
		{
			name: "an Env after another owner",
			owners: []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "ConfigMap", Name: "c"},
				{APIVersion: "agents.navix.sh/v1alpha1", Kind: "SandboxEnv", Name: "e"},
			},
			want: true,
		},
		{name: "another kind of the group",
			owners: []metav1.OwnerReference{{APIVersion: "agents.navix.sh/v1alpha1", Kind: "SandboxPool", Name: "p"}}},
		{name: "the kind in another group",
			owners: []metav1.OwnerReference{{APIVersion: "example.com/v1alpha1", Kind: "SandboxEnv", Name: "e"}}},
		{name: "a group that only starts alike",
			owners: []metav1.OwnerReference{{APIVersion: "agents.navix.sh.example.com/v1", Kind: "SandboxEnv", Name: "e"}}},
		{name: "the group without a version",
			owners: []metav1.OwnerReference{{APIVersion: "agents.navix.sh", Kind: "SandboxEnv", Name: "e"}}},
		{name: "a version that cannot be parsed",
			owners: []metav1.OwnerReference{{APIVersion: "agents.navix.sh/v1/x", Kind: "SandboxEnv", Name: "e"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pool := &v1alpha1.SandboxPool{ObjectMeta: metav1.ObjectMeta{OwnerReferences: tt.owners}}
			if got := v1alpha1.HasEnvOwner(pool); got != tt.want {
				t.Errorf("HasEnvOwner() = %v, want %v", got, tt.want)
			}
		})
	}
}
