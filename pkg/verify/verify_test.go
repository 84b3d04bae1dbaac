// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navix.sh/atoll/api/v1alpha1"
)

func pod(name, phase, id, keyHash string) corev1.Pod {
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name,
		Labels: map[string]string{
			v1alpha1.SandboxPhaseLabelKey: phase, v1alpha1.SandboxIDLabelKey: id, v1alpha1.ClaimKeyHashLabelKey: keyHash,
		},
		Annotations: map[string]string{v1alpha1.SandboxIDAnnotationKey: id},
	}}
}

func env(local string, segments ...v1alpha1.EnvClusterStatus) v1alpha1.SandboxEnv {
	e := v1alpha1.SandboxEnv{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "py"}}
	for _, s := range segments {
		s.IsLocal = s.ClusterID == local
		e.Status.Clusters = append(e.Status.Clusters, s)
	}
	return e
}

func segment(cluster string, idle int32) v1alpha1.EnvClusterStatus {
	return v1alpha1.EnvClusterStatus{ClusterID: cluster, ObservedMembers: []v1alpha1.EnvObservedMember{
		{Name: "py-" + cluster, State: v1alpha1.ObservedMemberStateActive, IdleCount: idle},
	}}
}

func healthy() []Cluster {
	east, west := func() v1alpha1.EnvClusterStatus { return segment("east", 2) }, func() v1alpha1.EnvClusterStatus { return segment("west", 3) }
	return []Cluster{
		{ID: "east", Pods: []corev1.Pod{pod("a", "running", "1-east", "k1"), pod("b", "idle", "", "")},
			Envs: []v1alpha1.SandboxEnv{env("east", east(), west())}},
		{ID: "west", Pods: []corev1.Pod{pod("a", "running", "2-west", "k2")},
			Envs: []v1alpha1.SandboxEnv{env("west", west(), east())}},
	}
}

func TestAHealthyFederationHasNoFindings(t *testing.T) {
	if found := Check(healthy()); len(found) != 0 {
		t.Errorf("found %v", found)
	}
}

func TestEachBreachIsFound(t *testing.T) {
	dying := metav1.NewTime(time.Unix(1, 0))
	for name, tc := range map[string]struct {
		breach func([]Cluster)
		want   string
	}{
		"I1 one sandbox on two Pods": {
			func(c []Cluster) { c[0].Pods = append(c[0].Pods, pod("c", "running", "1-east", "k9")) },
			"I1: pod default/c in east: sandbox 1-east is also on pod default/a in east",
		},
		"I1 running without a sandbox": {
			func(c []Cluster) { c[0].Pods = append(c[0].Pods, pod("c", "running", "", "")) },
			"I1: pod default/c in east: is running without a sandbox id",
		},
		"I1 a sandbox of another cluster": {
			func(c []Cluster) { c[0].Pods = append(c[0].Pods, pod("c", "running", "7-west", "")) },
			"I1: pod default/c in east: sandbox \"7-west\" was not minted by this cluster",
		},
		"I2 one key in two clusters": {
			func(c []Cluster) { c[1].Pods = append(c[1].Pods, pod("c", "starting", "3-west", "k1")) },
			"I2: pod default/c in west: claim key k1 is also on pod default/a in east",
		},
		"I3 a foreign segment called local": {
			func(c []Cluster) { c[0].Envs[0].Status.Clusters[1].IsLocal = true },
			"I3: env default/py in east: segment west has isLocal=true",
		},
		"I4 a stale foreign segment": {
			func(c []Cluster) { c[0].Envs[0].Status.Clusters[1].ObservedMembers[0].IdleCount = 9 },
			"I4: env default/py in east: shows west as [py-west:Active idle=9 running=0 desired=0], its owner says [py-west:Active idle=3 running=0 desired=0]",
		},
		"I4 a missing foreign segment": {
			func(c []Cluster) { c[0].Envs[0].Status.Clusters = c[0].Envs[0].Status.Clusters[:1] },
			"I4: env default/py in east: does not show the segment of west",
		},
		"I4 a segment that came back": {
			func(c []Cluster) { c[1].Envs = nil },
			"I4: env default/py in east: shows a segment of west, which has none",
		},
		"I13 identity on an idle Pod": {
			func(c []Cluster) { c[0].Pods[1].Annotations[v1alpha1.ClaimKeyAnnotationKey] = "mine" },
			"I13: pod default/b in east: is idle and carries agentbox.navix.sh/claim-key",
		},
	} {
		t.Run(name, func(t *testing.T) {
			clusters := healthy()
			tc.breach(clusters)
			var got []string
			for _, f := range Check(clusters) {
				got = append(got, f.String())
			}
			if diff := cmp.Diff(tc.want, strings.Join(got, "\n")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	t.Run("a dying Pod is nobody's", func(t *testing.T) {
		clusters := healthy()
		twin := pod("c", "running", "1-east", "k1")
		twin.DeletionTimestamp = &dying
		clusters[0].Pods = append(clusters[0].Pods, twin)
		if found := Check(clusters); len(found) != 0 {
			t.Errorf("found %v", found)
		}
	})
}
