// SPDX-License-Identifier: Apache-2.0

package federation_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/problem"
)

// watchLag is how late a change may be told.
const watchLag = time.Second

// arrival is an event, and when it came.
type arrival struct {
	*sandboxv1.SandboxEvent
	at time.Time
}

// watcher keeps the events of a watch.
type watcher struct {
	mu     sync.Mutex
	events []arrival
	err    error
}

func (w *watcher) add(e *sandboxv1.SandboxEvent, err error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.err = err
		return false
	}
	w.events = append(w.events, arrival{e, time.Now()})
	return true
}

// find waits for the first event that is so.
func (w *watcher) find(ctx context.Context, t *testing.T, what string, is func(*sandboxv1.SandboxEvent) bool) (found arrival) {
	t.Helper()
	must.Succeed(t, wait.Until(ctx, patience, what, func(context.Context) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		i := slices.IndexFunc(w.events, func(a arrival) bool { return is(a.SandboxEvent) })
		if i < 0 {
			return fmt.Errorf("%d events, error %w", len(w.events), w.err)
		}
		found = w.events[i]
		return nil
	}))
	return found
}

// inTime waits for an event about a sandbox, which must come within watchLag of a moment.
func (w *watcher) inTime(ctx context.Context, t *testing.T, since time.Time, id, what string, is func(*sandboxv1.SandboxEvent) bool) {
	t.Helper()
	e := w.find(ctx, t, what+" of "+id, func(e *sandboxv1.SandboxEvent) bool { return e.GetSandbox().GetId() == id && is(e) })
	lag := e.at.Sub(since)
	t.Logf("%s of %s came after %s", what, id, lag)
	if lag > watchLag {
		t.Errorf("%s of %s came after %s, want at most %s", what, id, lag, watchLag)
	}
}

// only reports whether all events so far are of one sandbox, and there are any.
func (w *watcher) only(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, e := range w.events {
		if e.GetType() == sandboxv1.SandboxEvent_BOOKMARK {
			continue
		}
		if n++; e.GetSandbox().GetId() != id {
			return false
		}
	}
	return n > 0
}

func is(types ...sandboxv1.SandboxEvent_Type) func(*sandboxv1.SandboxEvent) bool {
	return func(e *sandboxv1.SandboxEvent) bool { return slices.Contains(types, e.GetType()) }
}

// over reports whether an event tells that its sandbox is over, or about to be.
func over(e *sandboxv1.SandboxEvent) bool {
	return e.GetType() == sandboxv1.SandboxEvent_DELETED || e.GetSandbox().GetPhase() == sandboxv1.Phase_STOPPING
}

// watchGRPC watches an Env over gRPC.
func watchGRPC(ctx context.Context, t *testing.T, c *stack.Client, r *sandboxv1.WatchSandboxesRequest) *watcher {
	t.Helper()
	stream, err := c.WatchSandboxes(ctx, r)
	must.Succeed(t, err)
	w := &watcher{}
	go func() {
		for w.add(stream.Recv()) {
		}
	}()
	return w
}

// watchREST watches an Env as server-sent events.
func watchREST(ctx context.Context, t *testing.T, query string) *watcher {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, atoll.HubEndpoint().URL()+"/v1/sandboxes?watch=true&"+query, nil)
	must.Succeed(t, err)
	resp, err := rest.Do(r) //nolint:bodyclose // the goroutine below closes it
	must.Succeed(t, err)
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("a watch is %d %v", resp.StatusCode, resp.Header)
	}
	w := &watcher{}
	go func() {
		defer resp.Body.Close()
		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			data, ok := strings.CutPrefix(lines.Text(), "data: ")
			if !ok {
				continue
			}
			event := &sandboxv1.SandboxEvent{}
			if !w.add(event, protojson.Unmarshal([]byte(data), event)) {
				return
			}
		}
	}()
	return w
}

func bookmark(away ...string) func(*sandboxv1.SandboxEvent) bool {
	return func(e *sandboxv1.SandboxEvent) bool {
		return e.GetType() == sandboxv1.SandboxEvent_BOOKMARK && slices.Equal(e.GetUnreachableClusters(), away)
	}
}

// A change in any cluster is told within a second, over gRPC and REST. I5: a worker that is killed ends no sandbox, here neither.
func TestI5WatchesTellOfEachClusterInTime(t *testing.T) {
	ctx := testContext(t)
	e := newEnv(ctx, t, "watch", equally(2)...)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t.Cleanup(rest.CloseIdleConnections)
	overGRPC := watchGRPC(ctx, t, hub, &sandboxv1.WatchSandboxesRequest{Env: e.Name})
	overREST := watchREST(ctx, t, "env="+e.Name)
	both := []*watcher{overGRPC, overREST}
	for _, w := range both {
		w.find(ctx, t, "the end of the beginning", bookmark())
	}
	made := map[string]*sandboxv1.Sandbox{}
	for _, cluster := range clusters {
		s := e.mustClaim(ctx, t, hub, &sandboxv1.CreateSandboxRequest{
			Clusters: []string{cluster}, RequireClusters: true, Labels: map[string]string{"in": cluster},
		})
		since := time.Now()
		made[cluster] = s
		for _, w := range both {
			w.inTime(ctx, t, since, s.GetId(), "the beginning", is(sandboxv1.SandboxEvent_ADDED))
		}
	}
	labelled := watchGRPC(ctx, t, hub, &sandboxv1.WatchSandboxesRequest{Env: e.Name, LabelSelector: "in=west"})
	labelled.find(ctx, t, "the end of the beginning", bookmark())
	if !labelled.only(made["west"].GetId()) {
		t.Error("in=west shows others, or nothing")
	}
	mark := overGRPC.find(ctx, t, "the end of the beginning", bookmark()).GetResumeToken()

	t.Run("local", func(t *testing.T) {
		w := watchGRPC(ctx, t, local["east"], &sandboxv1.WatchSandboxesRequest{Env: e.Name})
		w.find(ctx, t, "the end of the beginning", bookmark())
		if !w.only(made["east"].GetId()) {
			t.Error("a worker's watch shows others, or nothing")
		}
	})
	for _, cluster := range []string{"east", "north"} {
		e.mustRelease(ctx, t, hub, made[cluster])
		since := time.Now()
		for _, w := range both {
			id := made[cluster].GetId()
			w.inTime(ctx, t, since, id, "the release", over)
			ended := w.find(ctx, t, "the end of "+id, func(e *sandboxv1.SandboxEvent) bool {
				return e.GetType() == sandboxv1.SandboxEvent_DELETED && e.GetSandbox().GetId() == id
			})
			if ended.GetSandbox().GetStopReason() != "Released" {
				t.Errorf("it ended so: %v", ended.SandboxEvent)
			}
		}
	}

	must.Succeed(t, atoll.Worker("west").Kill())
	overGRPC.find(ctx, t, "west to be named", bookmark("west"))
	resumed := watchGRPC(ctx, t, hub, &sandboxv1.WatchSandboxesRequest{Env: e.Name, ResumeToken: mark})
	resumed.find(ctx, t, "west to be named", bookmark("west"))
	must.Succeed(t, atoll.Worker("west").Start(ctx))
	must.Succeed(t, waitState(ctx, "west", sandboxv1.ClusterState_FRESH))
	resumed.find(ctx, t, "west to be heard again", bookmark())
	for _, w := range append(both, resumed) {
		w.mu.Lock()
		for _, event := range w.events {
			if event.GetType() == sandboxv1.SandboxEvent_DELETED && event.GetSandbox().GetId() == made["west"].GetId() {
				t.Errorf("the sandbox of a worker that was killed has ended: %v", event)
			}
		}
		w.mu.Unlock()
	}
	other := watchGRPC(ctx, t, hub, &sandboxv1.WatchSandboxesRequest{Env: e.Name + "x", ResumeToken: mark})
	must.Succeed(t, wait.Until(ctx, patience, "the token of another watch to be refused", func(context.Context) error {
		other.mu.Lock()
		defer other.mu.Unlock()
		return wait.If(problem.FromError(other.err) != nil && problem.FromError(other.err).Reason == problem.Invalid, other.err)
	}))
	e.mustRelease(ctx, t, hub, made["west"])
}
