// SPDX-License-Identifier: Apache-2.0

package adversary_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"navix.sh/atoll/api/v1alpha1"
)

// editorNamespace is the namespace that the adversary edits.
const editorNamespace = "mallory"

// editorRows attack through the API server of a cluster, with the rights of a namespace editor.
func editorRows() []row {
	return []row{
		{name: "leases", role: editor, told: []string{"OK"}, attack: objects(8, leases)},
		{name: "forged-pods", role: editor, told: []string{"OK|Invalid|Forbidden"}, attack: objects(8, forgedPods)},
		{name: "many-envs", role: editor, told: []string{"OK"}, attack: objects(20, manyEnvs)},
		{name: "wide-envs", role: editor, told: []string{"OK|Invalid"}, attack: objects(8, wideEnvs),
			direct: objects(8, idle(wideEnvs))},
		{name: "foreign-segments", role: editor, told: []string{"OK|Invalid|Forbidden"}, attack: objects(4, foreignSegments)},
		{name: "extreme-pools", role: editor, told: []string{"Invalid|OK"}, attack: objects(4, extremePools)},
		{name: "other-namespaces", role: editor, told: []string{"Forbidden"}, never: []string{"OK"}, attack: objects(4, otherNamespaces)},
	}
}

// kube is a client with the editor's rights.
func (a *attacker) kube() (client.Client, error) {
	config, err := clientcmd.BuildConfigFromFlags("", a.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	config.QPS, config.Burst = 1000, 1000
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, err
	}
	return client.New(config, client.Options{Scheme: scheme})
}

// objects creates objects again and again, and deletes what it created.
func objects(kept int, object func(a *attacker, i int) client.Object) func(context.Context, *attacker) error {
	return func(ctx context.Context, a *attacker) error {
		kube, err := a.kube()
		if err != nil {
			return err
		}
		done := "OK"
		if a.Direct != nil {
			done = opened
		}
		var created []client.Object
		for i := 0; ctx.Err() == nil; i++ {
			a.attempts.Add(1)
			o := object(a, i)
			err := kube.Create(ctx, o)
			if ctx.Err() != nil {
				break
			}
			if reason := apierrors.ReasonForError(err); err != nil {
				a.tell(string(reason))
			} else {
				a.tell(done)
				created = append(created, o)
			}
			a.sent.Add(1)
			if len(created) > a.size(kept, 10*kept) {
				_ = kube.Delete(ctx, created[0])
				created = created[1:]
			}
		}
		ending, cancel := context.WithTimeout(context.Background(), grace/2)
		defer cancel()
		for _, o := range created {
			_ = kube.Delete(ending, o)
		}
		return nil
	}
}

// unused is a name that no object has.
func unused(prefix string) string { return fmt.Sprintf("%s-%d", prefix, time.Now().UnixNano()) }

// leases look like those of another controller, for as long as there is time.
func leases(_ *attacker, i int) client.Object {
	name := []string{unused("x") + ".agents.navix.sh", unused("atoll-worker"), unused("agents.navix.sh")}[i%3]
	now := metav1.NowMicro()
	holder, long := "evil", int32(math.MaxInt32)
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: editorNamespace, Name: name},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &long, RenewTime: &now, AcquireTime: &now},
	}
}

// forgedPods are Pods that look like sandboxes of others.
func forgedPods(a *attacker, i int) client.Object {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: editorNamespace, Name: unused("forged"), Labels: map[string]string{
			v1alpha1.SandboxPhaseLabelKey: v1alpha1.SandboxPhaseRunning, v1alpha1.SandboxIDLabelKey: a.Canary, v1alpha1.LabelEnv: honestEnv,
			v1alpha1.ClaimKeyHashLabelKey: keyHash("ann", canaryKey),
		}, Annotations: map[string]string{
			v1alpha1.ClaimKeyAnnotationKey: canaryKey, v1alpha1.ClaimAttemptAnnotationKey: fmt.Sprint(1 + i%3),
			v1alpha1.SandboxClaimedAtAnnotationKey: "9999-12-31T23:59:59Z",
		}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "registry.example/evil"}}},
	}
}

// envObject is an Env of the adversary's namespace.
func envObject(name string, members []any, more map[string]any) client.Object {
	spec := map[string]any{"mode": "WarmPool", "templateRef": map[string]any{"name": "adversary"},
		"clusters": []any{map[string]any{"clusterID": "east", "members": members}}}
	for k, v := range more {
		spec[k] = v
	}
	return custom("SandboxEnv", name, spec)
}

func memberObject(name string, replicas int64) map[string]any {
	return map[string]any{"name": name, "spec": map[string]any{"replicas": replicas},
		"config": map[string]any{"inlineResources": map[string]any{"requests": map[string]any{"cpu": "1m", "memory": "1Mi"}}}}
}

func manyEnvs(_ *attacker, _ int) client.Object {
	name := unused("many")
	return envObject(name, []any{memberObject(name+"-east", 0)}, nil)
}

// wideEnvs have as many members, and as long names, as the schema allows or more.
func wideEnvs(_ *attacker, i int) client.Object {
	var members []any
	prefix := unused("wide")
	for n := range 24 + 8*(i%3) {
		members = append(members, memberObject(fmt.Sprintf("%s-%d-%s", prefix, n, strings.Repeat("x", 20+i%200)), 0))
	}
	return envObject(prefix, members, nil)
}

// idle are the same Envs in a mode in which no worker does anything: what they cost is the API server's.
func idle(of func(*attacker, int) client.Object) func(*attacker, int) client.Object {
	return func(a *attacker, i int) client.Object {
		o := of(a, i)
		_ = unstructured.SetNestedField(o.(*unstructured.Unstructured).Object, string(v1alpha1.SandboxEnvModeOnDemandJob), "spec", "mode")
		return o
	}
}

// foreignSegments speak for another cluster.
func foreignSegments(_ *attacker, _ int) client.Object {
	name := unused("foreign")
	return envObject(name, []any{memberObject(name+"-east", 0)}, map[string]any{"clusters": []any{
		map[string]any{"clusterID": "west", "members": []any{memberObject(name+"-west", 1000)}},
		map[string]any{"clusterID": "nowhere", "members": []any{memberObject(name+"-nowhere", 1000)}},
	}})
}

func extremePools(_ *attacker, i int) client.Object {
	name := unused("extreme")
	replicas := []int64{-1, math.MinInt32, math.MaxInt32 + 1, math.MaxInt64}
	return envObject(name, []any{memberObject(name+"-east", replicas[i%len(replicas)])}, nil)
}

func otherNamespaces(_ *attacker, i int) client.Object {
	o := manyEnvs(nil, i)
	o.SetNamespace([]string{namespace, "kube-system", "atoll-system"}[i%3])
	return o
}
