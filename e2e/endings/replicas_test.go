// SPDX-License-Identifier: Apache-2.0

package endings_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/problem"
)

// Every replica responds, by way of the leader; and by way of the next leader after that one has died.
func TestEveryReplicaAnswers(t *testing.T) {
	ctx := t.Context()
	b := newLedger(t)
	var replicas []*stack.Client
	names := []string{cluster, cluster + "+2"}
	for _, name := range names {
		c, err := atoll.WorkerClient(name)
		must.Succeed(t, err)
		replicas = append(replicas, c)
	}
	create := func(at *stack.Client, key string) (got *sandboxv1.Sandbox) {
		t.Helper()
		wait.For(b.t, patience, "a sandbox", func(ctx context.Context) (err error) {
			got, err = at.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{Env: b.env, ClaimKey: key})
			return err
		})
		return got
	}
	for i, at := range replicas {
		other := replicas[1-i]
		mine := create(at, "")
		if got, err := other.GetSandbox(ctx, &sandboxv1.GetSandboxRequest{Id: mine.GetId()}); err != nil || got.GetPodUid() != mine.GetPodUid() {
			t.Errorf("replica %d created %s, the other one shows %v (%v)", i, mine.GetId(), got, err)
		}
		for _, name := range names {
			if err := reads(ctx, atoll.WorkerEndpoint(name), mine.GetId()); err != nil {
				t.Errorf("the log of what replica %d created, at %s: %v", i, name, err)
			}
		}
		if err := other.Release(ctx, mine.GetId()); err != nil {
			t.Errorf("the other replica does not release what replica %d created: %v", i, err)
		}
		_, err := at.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{Env: "nowhere"})
		if e := problem.FromError(err); e.Reason != problem.NotFound {
			t.Errorf("replica %d about an Env that is not there: %v, want %s", i, err, problem.NotFound)
		}
	}
	first := create(replicas[0], "of-a-replica")
	if second := create(replicas[1], "of-a-replica"); second.GetId() != first.GetId() {
		t.Errorf("I2: the same key at two replicas: %s and %s", first.GetId(), second.GetId())
	}
	must.Succeed(t, atoll.Worker(cluster).Kill())
	if again := create(replicas[1], "of-a-replica"); again.GetId() != first.GetId() {
		t.Errorf("I2: the same key after a replica died: %s and %s", first.GetId(), again.GetId())
	}
	must.Succeed(t, atoll.Worker(cluster).Start(ctx))
	if again := create(replicas[0], "of-a-replica"); again.GetId() != first.GetId() {
		t.Errorf("I2: the same key at the replica that is back: %s and %s", first.GetId(), again.GetId())
	}
	must.Succeed(t, replicas[0].Release(ctx, first.GetId()))
}

// A follower's watch is its leader's: it tells of the same sandboxes, and either replica goes on with the other one's resume token.
func TestEveryReplicaWatches(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	b := newLedger(t)
	made := b.create(ctx)
	tokens := map[string]string{}
	names := []string{cluster, cluster + "+2"}
	for _, name := range names {
		at, err := atoll.WorkerClient(name)
		must.Succeed(t, err)
		all := watched(ctx, t, at, &sandboxv1.WatchSandboxesRequest{Env: b.env}, sandboxv1.SandboxEvent_BOOKMARK)
		if len(all) != 2 || all[0].GetType() != sandboxv1.SandboxEvent_ADDED || all[0].GetSandbox().GetId() != made.GetId() {
			t.Errorf("a watch at %s begins with %v, want an ADDED of %s", name, all, made.GetId())
		}
		tokens[name] = all[len(all)-1].GetResumeToken()
	}
	must.Succeed(t, hub.Release(ctx, made.GetId()))
	for i, name := range names {
		at, err := atoll.WorkerClient(name)
		must.Succeed(t, err)
		all := watched(ctx, t, at, &sandboxv1.WatchSandboxesRequest{Env: b.env, ResumeToken: tokens[names[1-i]]},
			sandboxv1.SandboxEvent_DELETED)
		if last := all[len(all)-1].GetSandbox(); last.GetId() != made.GetId() || last.GetStopReason() != "Released" {
			t.Errorf("at %s, with the other replica's token, it ended as %v", name, last)
		}
	}
}

// watched returns the events of a watch up to the first one of a type.
func watched(
	ctx context.Context, t *testing.T, at *stack.Client, r *sandboxv1.WatchSandboxesRequest, last sandboxv1.SandboxEvent_Type,
) (all []*sandboxv1.SandboxEvent) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := at.WatchSandboxes(ctx, r)
	must.Succeed(t, err)
	for {
		event, err := stream.Recv()
		must.Succeed(t, err)
		if all = append(all, event); event.GetType() == last {
			return all
		}
	}
}

// reads asks a replica for a sandbox's log.
func reads(ctx context.Context, at stack.Endpoint, id string) error {
	client, err := at.HTTPClient()
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.URL()+"/v1/sandboxes/"+id+"/logs", nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return problem.Read(answer.StatusCode, answer.Body)
	}
	return nil
}

// A cluster whose leader is killed serves again within 8 s, by its other replica. Until then the hub lists its sandboxes as last known.
func TestTheNextLeaderServesSoon(t *testing.T) {
	// 8 s on a quiet machine: the lease, and one attempt to acquire it. Other suites may run beside this one.
	const soon = 12 * time.Second
	ctx := t.Context()
	b := newLedger(t)
	other, err := atoll.WorkerClient(cluster + "+2")
	must.Succeed(t, err)
	must.Succeed(t, second.Stop()) // so the first one leads
	made := b.create(ctx)
	must.Succeed(t, second.Start(ctx))
	wait.For(t, patience, "the follower, and a short lease", func(ctx context.Context) error {
		if _, err := other.GetSandbox(ctx, &sandboxv1.GetSandboxRequest{Id: made.GetId()}); err != nil {
			return err
		}
		lease := &coordinationv1.Lease{}
		if err := kube.Get(ctx, client.ObjectKey{Namespace: "atoll-system", Name: "atoll-worker"}, lease); err != nil {
			return err
		}
		return wait.If(*lease.Spec.LeaseDurationSeconds < 8, fmt.Sprint("a lease of ", *lease.Spec.LeaseDurationSeconds, " s"))
	})

	must.Succeed(t, atoll.Worker(cluster).Kill())
	killed := time.Now()
	page, err := hub.ListSandboxes(ctx, &sandboxv1.ListSandboxesRequest{Env: b.env})
	if err != nil || len(page.GetSandboxes()) != 1 || page.GetSandboxes()[0].GetId() != made.GetId() ||
		page.GetSandboxes()[0].GetStaleAge() == nil {
		t.Errorf("after the leader was killed the hub lists %v, %v", page, err)
	}
	var took time.Duration
	wait.For(t, patience, "a sandbox of the next leader", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		_, err := other.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{Env: b.env})
		took = time.Since(killed)
		return err
	})
	t.Logf("the next leader served after %s", took)
	if took > soon {
		t.Errorf("the next leader served after %s, want %s at most", took, soon)
	}
	wait.For(t, patience, "the hub's list", func(ctx context.Context) error {
		page, err := hub.ListSandboxes(ctx, &sandboxv1.ListSandboxesRequest{Env: b.env})
		return errors.Join(err, wait.If(len(page.GetSandboxes()) == 2 && page.GetSandboxes()[0].GetStaleAge() == nil, page.String()))
	})
	must.Succeed(t, atoll.Worker(cluster).Start(ctx))
}
