// SPDX-License-Identifier: Apache-2.0

package localapi_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/e2e/plane/planetest"
	"navix.sh/atoll/e2e/wait"
	"navix.sh/atoll/pkg/outcome"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/validate"
)

const envCanary = "canary-of-a-local-claim"

// sandboxesDaemons takes what is set.
type sandboxesDaemons struct {
	mu       sync.Mutex
	unready  error
	failure  error
	set      []string
	prepared func(ctx context.Context, id string) error // of the worker
	began    chan struct{}                              // not nil: told of each call, which waits for more
	more     chan struct{}
}

func (d *sandboxesDaemons) Ready() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.unready
}

func (d *sandboxesDaemons) Set(ctx context.Context, sandbox *sandboxv1.Sandbox, of *sandboxv1.CreateSandboxRequest) error {
	if len(validate.Belongings(of)) > 0 {
		if err := d.take(sandbox.GetId(), of); err != nil {
			return err
		}
	}
	if !outcome.IsPreparing(sandbox) {
		return nil
	}
	if err := d.prepared(ctx, sandbox.GetId()); err != nil {
		return err
	}
	sandbox.Phase, sandbox.StatusDetail = sandboxv1.Phase_RUNNING, nil
	return nil
}

func (d *sandboxesDaemons) take(id string, of *sandboxv1.CreateSandboxRequest) error {
	d.mu.Lock()
	began, more, failure := d.began, d.more, d.failure
	d.set = append(d.set, fmt.Sprint(id, of.GetEnvVars(), len(of.GetFiles()), of.GetWorkdir(), len(of.GetSecrets())))
	d.mu.Unlock()
	if began != nil {
		began <- struct{}{}
		<-more
	}
	return failure
}

func (d *sandboxesDaemons) become(unready, failure error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unready, d.failure, d.set = unready, failure, nil
}

func (d *sandboxesDaemons) was() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.set
}

// testEnvironment: what a daemon takes of a local claim is set before the sandbox is returned, or the sandbox ends.
func testEnvironment(t *testing.T, sandboxes sandboxv1.SandboxesClient, envs sandboxv1.EnvsClient, daemons *sandboxesDaemons) {
	t.Helper()
	// A claim for which none is idle would wait in one pool, and the next Pod may be the other's.
	oneIdle := func() {
		t.Helper()
		awaitIdle(t, envs, func(ready map[string]int32) bool { return ready["near"]+ready["far"] > 0 })
	}
	claim := func(key, value string) *sandboxv1.CreateSandboxRequest {
		return &sandboxv1.CreateSandboxRequest{
			Env: "demo", ClaimKey: key, Team: "env", Workdir: "/" + value, EnvVars: map[string]string{"A": value},
			Files: []*sandboxv1.SandboxFile{{Path: value, Content: []byte(value)}},
		}
	}
	refused := func(r *sandboxv1.CreateSandboxRequest, want problem.Reason) {
		t.Helper()
		got, err := sandboxes.CreateSandbox(t.Context(), r)
		if err == nil || problem.FromError(err).Reason != want || strings.Contains(err.Error(), envCanary) {
			t.Errorf("%v, %v, want %s", got, err, want)
		}
	}
	live := func() (ids []string) {
		t.Helper()
		all, err := sandboxes.ListSandboxes(t.Context(), &sandboxv1.ListSandboxesRequest{Team: "env"})
		must.Succeed(t, err)
		for _, s := range all.GetSandboxes() {
			if s.GetPhase() == sandboxv1.Phase_RUNNING {
				ids = append(ids, s.GetId())
			}
		}
		return ids
	}
	daemons.become(problem.New(problem.Misconfigured, "no key"), nil)
	refused(claim("", envCanary), problem.Misconfigured)
	if set, ids := daemons.was(), live(); len(set)+len(ids) != 0 {
		t.Fatalf("set %v, claimed %v for nothing", set, ids)
	}
	daemons.become(nil, problem.New(problem.Misconfigured, "no word"))
	for _, key := range []string{"", "broken"} {
		oneIdle()
		refused(claim(key, envCanary), problem.Misconfigured)
		if n := len(live()); n != 0 {
			t.Errorf("%d sandboxes stayed without their environment", n)
		}
	}
	daemons.become(nil, nil)
	oneIdle()
	made, err := sandboxes.CreateSandbox(t.Context(), claim("whole", envCanary))
	must.Succeed(t, err)
	want := made.GetId() + " map[A:" + envCanary + "]1 /" + envCanary + "0"
	if set := daemons.was(); len(set) != 1 || strings.ReplaceAll(set[0], " ", "") != strings.ReplaceAll(want, " ", "") ||
		strings.Contains(made.String(), envCanary) {
		t.Errorf("set %q, want %q; returned %v", set, want, made)
	}
	// A repeated call sets its own, and ends nothing.
	if again, err := sandboxes.CreateSandbox(t.Context(), claim("whole", "other")); err != nil || again.GetId() != made.GetId() ||
		len(daemons.was()) != 2 {
		t.Errorf("again: %v, %v; set %v", again, err, daemons.was())
	}
	daemons.become(nil, problem.New(problem.Misconfigured, "no word"))
	refused(claim("whole", envCanary), problem.Misconfigured)
	if ids := live(); len(ids) != 1 || ids[0] != made.GetId() {
		t.Errorf("after a repeated call that failed there are %v, want %s", ids, made.GetId())
	}
	oneIdle()
	testTwoCallers(t, sandboxes, daemons, claim, live)
}

// testTwoCallers: a call that fails does not end the sandbox that another call with its key may return.
func testTwoCallers(t *testing.T, sandboxes sandboxv1.SandboxesClient, daemons *sandboxesDaemons,
	claim func(key, value string) *sandboxv1.CreateSandboxRequest, live func() []string,
) {
	t.Helper()
	daemons.began, daemons.more = make(chan struct{}), make(chan struct{})
	first := make(chan error, 1)
	go func() {
		_, err := sandboxes.CreateSandbox(t.Context(), claim("shared", "a"))
		first <- err
	}()
	select {
	case <-daemons.began:
	case err := <-first:
		t.Fatalf("the first call returned %v, and its daemon was told nothing", err)
	}
	// Until it has its environment, no other caller sees it running.
	all, err := sandboxes.ListSandboxes(t.Context(), &sandboxv1.ListSandboxesRequest{Team: "env"})
	must.Succeed(t, err)
	preparing := slices.IndexFunc(all.GetSandboxes(), func(s *sandboxv1.Sandbox) bool { return s.GetClaimKey() == "shared" })
	if preparing < 0 || !outcome.IsPreparing(all.GetSandboxes()[preparing]) {
		t.Errorf("a sandbox without its environment is %v", all.GetSandboxes())
	}
	second := claim("shared", "")
	second.Workdir, second.EnvVars, second.Files = "", nil, nil
	got, err := sandboxes.CreateSandbox(t.Context(), second)
	must.Succeed(t, err)
	daemons.more <- struct{}{}
	if err := <-first; problem.FromError(err).Reason != problem.Misconfigured {
		t.Errorf("the first call: %v", err)
	}
	if ids := live(); len(ids) != 2 {
		t.Errorf("%v run, want %s as well", ids, got.GetId())
	}
	planetest.Eventually(t, "the sandbox to go on", func() error {
		now, err := sandboxes.GetSandbox(t.Context(), &sandboxv1.GetSandboxRequest{Id: got.GetId()})
		return wait.If(err == nil && now.GetPhase() == sandboxv1.Phase_RUNNING, fmt.Sprintf("%v, %v", now.GetPhase(), err))
	})
}
