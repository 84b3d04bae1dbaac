// SPDX-License-Identifier: Apache-2.0

package joining_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/api/v1alpha1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
)

const envName = "joined"

// load claims and releases until it is stopped.
type load struct {
	stop  context.CancelFunc
	ended chan struct{}

	mu     sync.Mutex
	claims int
	errs   []error
}

// claiming starts callers. With keys they try again after what a caller with a key may.
func claiming(ctx context.Context, keys string) *load {
	ctx, stop := context.WithCancel(ctx)
	l := &load{stop: stop, ended: make(chan struct{})}
	go func() {
		defer close(l.ended)
		var calls sync.WaitGroup
		defer calls.Wait()
		ticker := time.NewTicker(time.Second / time.Duration(*rate))
		defer ticker.Stop()
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			calls.Go(func() {
				began := time.Now()
				err := one(context.WithoutCancel(ctx), keys, i)
				if err != nil {
					err = fmt.Errorf("at %s, after %s: %w", began.Format(time.TimeOnly), time.Since(began).Round(time.Millisecond), err)
				}
				l.mu.Lock()
				defer l.mu.Unlock()
				l.claims++
				if err != nil {
					l.errs = append(l.errs, err)
				}
			})
		}
	}()
	return l
}

// end returns how many claims failed of how many, and reports them.
func (l *load) end(t *testing.T, what string) (failed, of int) {
	t.Helper()
	l.stop()
	<-l.ended
	t.Logf("%s: %d claims, %d failed", what, l.claims, len(l.errs))
	if len(l.errs) > 0 {
		t.Logf("%s, such as: %v", what, errors.Join(l.errs[:min(len(l.errs), 12)]...))
	}
	return len(l.errs), l.claims
}

// checkFailures compares failures under renewals with those of a control at the same rate: of an overloaded machine, up to twice their
// share.
func checkFailures(t *testing.T, failed, of, controlFailed, controlOf int) {
	t.Helper()
	if allowed := 2 * float64(controlFailed) / float64(max(1, controlOf)) * float64(of); float64(failed) > allowed {
		t.Errorf("%d of %d claims failed under renewals and rotations, and %d of %d without any (the control)", failed, of, controlFailed,
			controlOf)
	}
}

func one(ctx context.Context, keys string, i int) error {
	request := &sandboxv1.CreateSandboxRequest{Env: envName, FirstActivityTimeout: durationpb.New(0)}
	if keys == "" {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		sandbox, err := hub.CreateSandbox(ctx, request)
		if err != nil {
			return fmt.Errorf("claim %d: %w", i, err)
		}
		if *keep {
			return nil
		}
		if err := hub.Release(ctx, sandbox.GetId()); err != nil {
			return fmt.Errorf("release %d: %w", i, err)
		}
		return nil
	}
	request = &sandboxv1.CreateSandboxRequest{Env: envName, ClaimKey: fmt.Sprintf("%s-%d", keys, i)}
	return wait.Until(ctx, patience, "claim "+request.GetClaimKey(), func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		sandbox, err := hub.CreateSandbox(ctx, request)
		if err != nil {
			return err
		}
		return hub.Release(ctx, sandbox.GetId())
	})
}

// renewed returns how many certificates a cluster's worker has got over the link since it was started.
func renewed(ctx context.Context, cluster string) (int, error) {
	n, err := atoll.SumMetrics(ctx, cluster, `atoll_worker_certificates_total{by="renew",outcome="issued"} `)
	return int(n), err
}

// pki waits until a rotation has come to a step, and returns the CA that signs.
func pki(t *testing.T, step sandboxv1.RotationStep) (signs string) {
	t.Helper()
	wait.For(t, patience, "the rotation to be "+step.String(), func(ctx context.Context) error {
		status, err := hub.GetPki(ctx, &sandboxv1.GetPkiRequest{})
		for _, ca := range status.GetCas() {
			if ca.GetSigns() {
				signs = ca.GetHash()
			}
		}
		return errors.Join(err, wait.If(status.GetStep() == step, status))
	})
	return signs
}

func serves(t *testing.T, cluster, key string) *sandboxv1.Sandbox {
	t.Helper()
	var sandbox *sandboxv1.Sandbox
	wait.For(t, patience, cluster+" to serve", func(ctx context.Context) (err error) {
		sandbox, err = hub.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{
			Env: envName, Clusters: []string{cluster}, RequireClusters: true, ClaimKey: key,
		})
		return err
	})
	return sandbox
}

func applyEnv(t *testing.T, in ...string) {
	t.Helper()
	e := stack.Env{Name: envName, Image: "test.local/joined:1", Pod: []func(*corev1.PodSpec){stack.ClosedPod}}
	for _, cluster := range append(slices.Clone(clusters), late) {
		e.Members = append(e.Members, stack.Member{Cluster: cluster, Replicas: *stock})
	}
	for _, cluster := range in {
		must.Succeed(t, e.Apply(t.Context(), atoll.Cluster(cluster)))
	}
}

// A fourth cluster joins by its invitation; certificates are renewed and the CA is rotated under load, and no call fails; the hub is
// killed in a rotation; a cluster that was away for all of one comes back by an invitation with its sandboxes and claim keys.
func TestClustersJoinRenewAndOutliveTheCA(t *testing.T) {
	ctx := t.Context()
	applyEnv(t, clusters...)
	for _, cluster := range clusters {
		serves(t, cluster, "first "+cluster)
	}
	must.Succeed(t, atoll.Worker("east").Stop())
	began := time.Now()
	must.Succeed(t, atoll.Worker("east").Start(ctx))
	serves(t, "east", "restarted east")
	restart := time.Since(began)
	began = time.Now()
	must.Succeed(t, atoll.Join(ctx, late))
	applyEnv(t, late)
	serves(t, late, "first "+late)
	took := time.Since(began)
	t.Logf("the fourth cluster serves after %s, one whose worker was restarted after %s", took.Round(time.Millisecond),
		restart.Round(time.Millisecond))
	if took > max(30*time.Second, 4*restart) {
		t.Errorf("the fourth cluster serves after %s", took)
	}

	everyone := append(slices.Clone(clusters), late)
	if *keep {
		full(t, everyone)
	}
	// A machine that is too busy for the rate would be judged instead of the renewals.
	controlFailed, controlOf := control(t, everyone)
	for controlFailed > 0 && *rate > 1 {
		*rate = (*rate + 1) / 2
		controlFailed, controlOf = control(t, everyone)
	}
	must.Succeed(t, atoll.Hub.Stop())
	must.Succeed(t, errors.Join(atoll.SetHubArgs(lifetimeFlag(*lifetime)), atoll.Hub.Start(ctx)))
	for _, cluster := range everyone {
		serves(t, cluster, "again "+cluster)
	}
	calls := claiming(ctx, "")
	first := pki(t, sandboxv1.RotationStep_STABLE)
	_, err := hub.RotateCa(ctx, &sandboxv1.RotateCaRequest{})
	must.Succeed(t, err)
	if second := pki(t, sandboxv1.RotationStep_STABLE); second == first {
		t.Error("after a rotation the same CA signs")
	}
	for _, cluster := range everyone {
		wait.For(t, time.Duration(*renewals+2)**lifetime+patience, fmt.Sprintf("%d renewals of %s", *renewals, cluster),
			func(ctx context.Context) error {
				n, err := renewed(ctx, cluster)
				return errors.Join(err, wait.If(n >= *renewals, n))
			})
	}
	failed, of := calls.end(t, "renewals and a rotation")
	checkFailures(t, failed, of, controlFailed, controlOf)
	for _, cluster := range everyone {
		n, err := renewed(ctx, cluster)
		must.Succeed(t, err)
		t.Logf("%s: %d renewals", cluster, n)
	}

	rotateWithoutWest(t)
	comesBack(t)
}

// full waits until every pool is.
func full(t *testing.T, everyone []string) {
	t.Helper()
	wait.For(t, 10*time.Minute, "every pool to be full", func(ctx context.Context) error {
		idle, err := hub.ReadyIdle(ctx, "default", envName)
		short := func(cluster string) bool { return idle[cluster] < *stock*9/10 } // some are claimed
		return errors.Join(err, wait.If(!slices.ContainsFunc(everyone, short), idle))
	})
}

// control claims at the same rate while certificates are far from their end, and returns how many claims failed.
func control(t *testing.T, everyone []string) (failed, of int) {
	t.Helper()
	before := map[string]int{}
	for _, cluster := range everyone {
		n, err := renewed(t.Context(), cluster)
		must.Succeed(t, err)
		before[cluster] = n
	}
	// Half as long as the renewals take: an overload shows by then, as claims that wait for Pods.
	lasts, began := time.Duration(*renewals)**lifetime*4/5/2, time.Now()
	calls := claiming(t.Context(), "")
	wait.For(t, lasts+patience, "the control's claims", func(context.Context) error {
		calls.mu.Lock()
		defer calls.mu.Unlock()
		return wait.If(time.Since(began) >= lasts, calls.claims)
	})
	failed, of = calls.end(t, "control")
	for _, cluster := range everyone {
		if n, err := renewed(t.Context(), cluster); err != nil || n != before[cluster] {
			t.Errorf("the control has %d renewals of %s: %v", n-before[cluster], cluster, err)
		}
	}
	return failed, of
}

// rotateWithoutWest rotates the CA while a cluster is away, and kills the hub in two of the steps.
func rotateWithoutWest(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	must.Succeed(t, atoll.Worker("west").Stop())
	calls := claiming(ctx, fmt.Sprintf("rotation-%d", time.Now().UnixNano()))
	before := pki(t, sandboxv1.RotationStep_STABLE)
	_, err := hub.RotateCa(ctx, &sandboxv1.RotateCaRequest{})
	must.Succeed(t, err)
	restart := func() {
		t.Helper()
		must.Succeed(t, atoll.Hub.Kill())
		must.Succeed(t, atoll.Hub.Start(ctx))
	}
	restart()
	pki(t, sandboxv1.RotationStep_DISTRIBUTING) // it waits for the cluster that is away
	goesOn(t, sandboxv1.RotationStep_DISTRIBUTING)
	restart()
	goesOn(t, sandboxv1.RotationStep_DISTRIBUTING, sandboxv1.RotationStep_RENEWING, sandboxv1.RotationStep_DROPPING)
	if failed, of := calls.end(t, "a rotation with the hub killed"); failed > 0 {
		t.Errorf("%d of %d claims with keys failed", failed, of)
	}
	if after := pki(t, sandboxv1.RotationStep_STABLE); after == before {
		t.Error("after a rotation the same CA signs")
	}
}

// goesOn waits for the end of some steps of a rotation, which nothing but the cluster that is away may hold up.
func goesOn(t *testing.T, from ...sandboxv1.RotationStep) {
	t.Helper()
	wait.For(t, patience, "the rotation to go on", func(ctx context.Context) error {
		status, err := hub.GetPki(ctx, &sandboxv1.GetPkiRequest{})
		step := status.GetStep()
		if err == nil && slices.Contains(from, step) && slices.Equal(status.GetWaitingFor(), []string{"west"}) {
			_, err = hub.RotateCa(ctx, &sandboxv1.RotateCaRequest{SkipWaiting: true, Step: step})
		}
		return errors.Join(err, wait.If(!slices.Contains(from, status.GetStep()), status))
	})
}

// comesBack: the cluster that was away serves locally, says why it is out, and comes back by an invitation.
func comesBack(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	must.Succeed(t, atoll.Worker("west").Start(ctx))
	local, err := atoll.WorkerClient("west")
	must.Succeed(t, err)
	wait.For(t, patience, "west to serve locally", func(ctx context.Context) error { // I8
		sandbox, err := local.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{Env: envName})
		if err != nil {
			return err
		}
		return local.Release(ctx, sandbox.GetId())
	})
	kube, err := atoll.Kube("west")
	must.Succeed(t, err)
	wait.For(t, patience, "the Env to say why", func(ctx context.Context) error {
		env := &v1alpha1.SandboxEnv{}
		err := kube.Get(ctx, client.ObjectKey{Namespace: "default", Name: envName}, env)
		f := meta.FindStatusCondition(env.Status.Conditions, v1alpha1.SandboxEnvConditionFederated)
		told := f != nil && strings.Contains(f.Message, "atollctl cluster invite west")
		return errors.Join(err, wait.If(told, env.Status.Conditions))
	})
	listed, err := local.ListSandboxes(ctx, &sandboxv1.ListSandboxesRequest{})
	must.Succeed(t, err)
	began := time.Now()
	must.Succeed(t, atoll.Invite(ctx, "west"))
	back := serves(t, "west", "first west")
	t.Logf("west is back after %s", time.Since(began).Round(time.Millisecond))
	if !slices.ContainsFunc(listed.GetSandboxes(), func(s *sandboxv1.Sandbox) bool { return s.GetId() == back.GetId() }) {
		t.Errorf("its claim key has another sandbox, %s, than before", back.GetId())
	}
}
