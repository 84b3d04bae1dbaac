// SPDX-License-Identifier: Apache-2.0

package endings_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
)

const (
	cluster  = "east"
	patience = 90 * time.Second
	replicas = 12
)

var (
	atoll  *stack.Stack
	second stack.Program // replica of the worker
	hub    *stack.Client
	kube   client.Client
)

func TestMain(m *testing.M) {
	stack.RunSuite("endings", func(ctx context.Context, dir, logDir string) (code int, err error) {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Minute)
		defer cancel()
		opts := stack.Options{BinDir: filepath.Join(dir, "bin"), LogDir: logDir}
		build := func(ctx context.Context) error { return stack.Build(ctx, opts.BinDir, true) }
		set, err := stack.Prepare(ctx, build, plane.Options{}, cluster)
		defer func() { err = errors.Join(err, set.Down(context.WithoutCancel(ctx))) }()
		if err != nil {
			return 1, err
		}
		if atoll, err = stack.Start(ctx, set, opts); err != nil {
			return 1, err
		}
		if second, err = atoll.WorkerAs(cluster, cluster, cluster); err != nil {
			return 1, err
		}
		if err := second.Start(ctx); err != nil {
			return 1, err
		}
		if hub, err = atoll.HubClient(); err != nil {
			return 1, err
		}
		if kube, err = atoll.Kube(cluster); err != nil {
			return 1, err
		}
		code = m.Run()
		return code, errors.Join(second.Stop(), atoll.Verify(ctx), atoll.Close())
	})
}

// ledger is a caller's view of its sandboxes of one Env.
type ledger struct {
	t        *testing.T
	env      string
	replicas int               // that are there in the end
	ends     map[string]string // by id, how it was ended: the stop reason that is to be recorded
	n        int
}

// newLedger applies an Env of the test's own.
func newLedger(t *testing.T) *ledger {
	t.Helper()
	b := &ledger{t: t, env: strings.ToLower(t.Name()), replicas: replicas, ends: map[string]string{}}
	e := stack.Env{
		Name: b.env, Image: "registry.example/python:3",
		Members: []stack.Member{{Cluster: cluster, Name: b.env, Replicas: b.replicas}},
	}
	must.Succeed(t, e.Apply(t.Context(), atoll.Cluster(cluster)))
	return b
}

func (b *ledger) create(ctx context.Context) *sandboxv1.Sandbox {
	b.t.Helper()
	b.n++
	r := &sandboxv1.CreateSandboxRequest{Env: b.env, Metadata: map[string]string{"n": fmt.Sprint(b.n)}}
	if b.n%2 == 0 {
		r.ClaimKey = fmt.Sprint(b.env, b.n)
	}
	var got *sandboxv1.Sandbox
	wait.For(b.t, patience, "a sandbox", func(ctx context.Context) (err error) {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		got, err = hub.CreateSandbox(ctx, r)
		return err
	})
	return got
}

// end ends a sandbox in one of the possible ways.
func (b *ledger) end(ctx context.Context, s *sandboxv1.Sandbox, way int) {
	b.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.GetNamespace(), Name: s.GetPod()}}
	var err error
	switch way % 4 {
	case 0:
		b.ends[s.GetId()] = "Released"
		wait.For(b.t, patience, "the release", func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
			defer cancel()
			return hub.Release(ctx, s.GetId())
		})
	case 1:
		b.ends[s.GetId()] = "Failed"
		err = kube.Delete(ctx, pod)
	case 2:
		b.ends[s.GetId()] = "Failed"
		err = kube.Delete(ctx, pod, client.GracePeriodSeconds(0)) // kubectl delete --force
	case 3: // out of memory, as a kubelet says it
		b.ends[s.GetId()] = "Failed"
		if err = kube.Get(ctx, client.ObjectKeyFromObject(pod), pod); err == nil {
			own := pod.Status.ContainerStatuses[0].ContainerID
			pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				ExitCode: 137, Reason: "OOMKilled", ContainerID: own,
			}}
			err = kube.Status().Update(ctx, pod)
		}
	}
	if err != nil {
		b.t.Fatalf("ending %s: %v", s.GetId(), err)
	}
}

// all returns the hub's history, by id.
func (b *ledger) all(ctx context.Context) (map[string]*sandboxv1.Sandbox, error) {
	out := map[string]*sandboxv1.Sandbox{}
	for token := ""; ; {
		page, err := hub.ListSandboxes(ctx, &sandboxv1.ListSandboxesRequest{Phase: sandboxv1.Phase_ENDED, Env: b.env, PageSize: 7,
			PageToken: token})
		if err != nil {
			return nil, err
		}
		if len(page.GetUnreachableClusters()) > 0 {
			return nil, errors.New("the cluster is away")
		}
		for _, s := range page.GetSandboxes() {
			if out[s.GetId()] != nil {
				return nil, fmt.Errorf("%s is there twice", s.GetId())
			}
			out[s.GetId()] = s
		}
		if token = page.GetNextPageToken(); token == "" {
			return out, nil
		}
	}
}

// check waits until every ended sandbox is in the history, once, with its reason, and no Pod waits.
func (b *ledger) check(ctx context.Context, when string) {
	b.t.Helper()
	var all map[string]*sandboxv1.Sandbox
	wait.For(b.t, patience, when+": every record", func(ctx context.Context) (err error) {
		if all, err = b.all(ctx); err != nil {
			return err
		}
		for id := range b.ends {
			if all[id] == nil {
				return fmt.Errorf("%s is missing; %d of %d are there", id, len(all), len(b.ends))
			}
		}
		return nil
	})
	for id, reason := range b.ends {
		s := all[id]
		if s.GetStopReason() != reason || s.GetTerminatedAt() == nil || s.GetPodUid() == "" || s.GetMemory() != "16Mi" ||
			s.GetMetadata()["n"] == "" {
			b.t.Errorf("%s: the record of %s is %v, want %s", when, id, s, reason)
		}
		wait.For(b.t, patience, when+": "+id+" to be answered as its record", func(ctx context.Context) error { // its Pod may still be stopping
			got, err := hub.GetSandbox(ctx, &sandboxv1.GetSandboxRequest{Id: id})
			return wait.If(err == nil && got.GetStopReason() == reason, fmt.Sprintf("%v, %v", got, err))
		})
	}
	for id := range all {
		if b.ends[id] == "" {
			b.t.Errorf("%s: %s is recorded and was not ended: %v", when, id, all[id])
		}
	}
	wait.For(b.t, patience, when+": no Pod to wait", func(ctx context.Context) error {
		pods := &corev1.PodList{}
		err := kube.List(ctx, pods, client.InNamespace("default"), client.MatchingLabels{v1alpha1.LabelEnv: b.env})
		waits := slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
		return errors.Join(err, wait.If(len(pods.Items) == b.replicas && !waits, fmt.Sprintf("%d Pods, one waits: %t", len(pods.Items), waits)))
	})
}

// Whichever program is killed at whatever moment, no record is missing and none is duplicated.
func TestEveryEndingIsRecordedOnce(t *testing.T) {
	ctx := t.Context()
	b := newLedger(t)
	random := rand.New(rand.NewPCG(7, 7))
	programs := []stack.Program{atoll.Worker(cluster), second}
	for round := range 4 {
		var live []*sandboxv1.Sandbox
		for range 8 {
			live = append(live, b.create(ctx))
		}
		for i, s := range live {
			b.end(ctx, s, i+round)
			if i == 3 {
				time.Sleep(time.Duration(random.Int64N(int64(60 * time.Millisecond))))
				victim := programs[random.IntN(2)]
				if round == 2 {
					victim = atoll.Hub
				}
				kill(t, victim)
			}
		}
		b.check(ctx, fmt.Sprint("round ", round))
	}

	// What one replica has, the other one has.
	for _, p := range programs {
		must.Succeed(t, p.Kill())
		b.check(ctx, "without "+p.String())
		must.Succeed(t, p.Start(ctx))
	}
	t.Logf("%d sandboxes have ended: %v", len(b.ends), count(slices.Collect(maps.Values(b.ends))))
}

// kill ends a program like a crash, and restarts it.
func kill(t *testing.T, p stack.Program) {
	t.Helper()
	must.Succeed(t, p.Kill())
	must.Succeed(t, p.Start(t.Context()))
}

func count(reasons []string) map[string]int {
	n := map[string]int{}
	for _, r := range reasons {
		n[r]++
	}
	return n
}
