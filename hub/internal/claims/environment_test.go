// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/hub/internal/ledger"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/hub/internal/workertest"
	"navix.sh/atoll/pkg/outcome"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/validate"
)

// sandboxesDaemons takes what is set.
type sandboxesDaemons struct {
	unready, failure error
	set              []string
}

func (d *sandboxesDaemons) Ready() error { return d.unready }

func (d *sandboxesDaemons) Set(_ context.Context, sandbox *sandboxv1.Sandbox, of *sandboxv1.CreateSandboxRequest) error {
	if d.failure == nil {
		d.set = append(d.set, fmt.Sprint(sandbox.GetId(), of.GetEnvVars()))
		if outcome.IsPreparing(sandbox) {
			sandbox.Phase, sandbox.StatusDetail = sandboxv1.Phase_RUNNING, nil
		}
	}
	return d.failure
}

func withDaemon(s *sandboxv1.Sandbox) *sandboxv1.Sandbox {
	s.Runtimes, s.Phase = []*sandboxv1.Runtime{{Name: "e2b"}}, sandboxv1.Phase_RUNNING
	return s
}

func variables(value string) func(*sandboxv1.CreateSandboxRequest) {
	return func(r *sandboxv1.CreateSandboxRequest) {
		r.EnvVars, r.Workdir, r.ExecUser = map[string]string{"A": value}, "/"+value, value
		r.Files = []*sandboxv1.SandboxFile{{Path: value, Content: []byte(value)}}
	}
}

func TestTheEnvironmentGoesNoFurther(t *testing.T) {
	in := workertest.Request("k", variables("canary"))
	out, err := resolve(in, principal.From(t.Context()))
	must.Succeed(t, err)
	if len(validate.Belongings(out)) > 0 || strings.Contains(string(ledger.Marshal(out)), "canary") || in.GetEnvVars()["A"] != "canary" {
		t.Errorf("what is stored and sent is %v, of %v", out, in)
	}
	plain, err := resolve(workertest.Request("k"), principal.From(t.Context()))
	must.Succeed(t, err)
	if !proto.Equal(out, plain) {
		t.Error("a claim with other variables conflicts")
	}
}

func TestAnEnvironmentThatCannotBeSet(t *testing.T) {
	f := newFederation(t, map[string]int32{"east": 3})
	daemons := &sandboxesDaemons{}
	refused := func(what string, want problem.Reason) {
		t.Helper()
		err := f.wantReason(want, workertest.Request("", variables("canary")))
		if strings.Contains(fmt.Sprint(err), "canary") {
			t.Errorf("%s: %v has a value", what, err)
		}
	}
	refused("no way to set it", problem.Unimplemented)
	f.hub.SetEnvironment(daemons)
	daemons.unready = problem.New(problem.Misconfigured, "no key")
	refused("no key", problem.Misconfigured)
	if claims := f.Workers["east"].Claims(); len(claims) != 0 {
		t.Fatalf("claimed %v for nothing", claims)
	}
	daemons.unready = nil
	// The simulated worker's template lists no runtime. What was claimed is released.
	refused("no daemon", problem.Invalid)
	if n := f.Workers["east"].Releases(); n != 1 || len(daemons.set) != 0 {
		t.Errorf("%d sandboxes were released, want 1; set %v", n, daemons.set)
	}
	// Each of them alone needs the daemon.
	for i, change := range []func(*sandboxv1.CreateSandboxRequest){
		func(r *sandboxv1.CreateSandboxRequest) { r.Workdir = "/work" },
		func(r *sandboxv1.CreateSandboxRequest) { r.ExecUser = "agent" },
		func(r *sandboxv1.CreateSandboxRequest) { r.Files = []*sandboxv1.SandboxFile{{Path: "a"}} },
	} {
		f.wantReason(problem.Invalid, workertest.Request("", change))
		if n := f.Workers["east"].Releases(); n != 2+i {
			t.Errorf("%d sandboxes were released, want %d", n, 2+i)
		}
	}
}

func TestEquip(t *testing.T) {
	f := newFederation(t, map[string]int32{"east": 3})
	daemons := &sandboxesDaemons{}
	f.hub.SetEnvironment(daemons)
	env, none := workertest.Request("", variables("a")), workertest.Request("")
	made := withDaemon(f.create(workertest.Request("")))
	must.Succeed(t, f.hub.equip(t.Context(), made, env, false))
	if want := made.GetId() + "map[A:a]"; len(daemons.set) != 1 || daemons.set[0] != want {
		t.Errorf("set %v, want %s", daemons.set, want)
	}
	must.Succeed(t, f.hub.equip(t.Context(), made, none, false))
	ended := withDaemon(proto.CloneOf(made))
	ended.Phase = sandboxv1.Phase_ENDED
	must.Succeed(t, f.hub.equip(t.Context(), ended, env, true))
	if len(daemons.set) != 1 {
		t.Errorf("set %v, where there is nothing to set", daemons.set)
	}
	preparing := proto.CloneOf(made)
	preparing.Phase, preparing.StatusDetail = sandboxv1.Phase_STARTING, &sandboxv1.StatusDetail{Reason: outcome.Preparing}
	for _, in := range []*sandboxv1.CreateSandboxRequest{env, none} { // none: another call with its key gives it something
		s := proto.CloneOf(preparing)
		must.Succeed(t, f.hub.equip(t.Context(), s, in, true))
		if s.GetPhase() != sandboxv1.Phase_RUNNING {
			t.Errorf("a prepared sandbox is returned as %s", s.GetPhase())
		}
	}
	denied := workertest.Request("", func(r *sandboxv1.CreateSandboxRequest) { r.DenyEgress = true })
	closed := proto.CloneOf(made)
	closed.EgressDenied = true
	must.Succeed(t, f.hub.equip(t.Context(), closed, denied, false))
	workertest.WantReason(t, f.hub.equip(t.Context(), made, denied, true), problem.Misconfigured) // its worker is older
	daemons.failure = problem.New(problem.Misconfigured, "no word")
	// An earlier call has returned it, so it stays.
	workertest.WantReason(t, f.hub.equip(t.Context(), made, env, true), problem.Misconfigured)
	if n := f.Workers["east"].Releases(); n != 0 {
		t.Errorf("%d sandboxes were released that are in use", n)
	}
	workertest.WantReason(t, f.hub.equip(t.Context(), made, env, false), problem.Misconfigured)
	if n := f.Workers["east"].Releases(); n != 1 {
		t.Errorf("%d sandboxes were released, want 1", n)
	}
}

// A worker shows the sandbox as starting until it is prepared, where the claim has something to prepare.
func TestAClaimWithAnEnvironmentIsPrepared(t *testing.T) {
	f := newFederation(t, map[string]int32{"east": 8})
	f.hub.SetEnvironment(&sandboxesDaemons{})
	east := f.Workers["east"]
	east.OnClaim = func(_ context.Context, c *federationv1.ClaimCall, carryOut func() *federationv1.Answer) (*federationv1.Answer, error) {
		answer := carryOut()
		s := withDaemon(answer.GetSandbox())
		if c.GetPrepares() {
			s.Phase, s.StatusDetail = sandboxv1.Phase_STARTING, &sandboxv1.StatusDetail{Reason: outcome.Preparing}
		}
		s.Labels = map[string]string{"prepares": strconv.FormatBool(c.GetPrepares())}
		return answer, nil
	}
	for key, change := range map[string]func(*sandboxv1.CreateSandboxRequest){"": variables("a"), "k": variables("a"), "plain": nil} {
		r := workertest.Request(key)
		if change != nil {
			change(r)
		}
		got, err := f.hub.Create(t.Context(), r)
		if err != nil || got.GetPhase() != sandboxv1.Phase_RUNNING || got.GetLabels()["prepares"] != strconv.FormatBool(change != nil) {
			t.Errorf("key %q: %v, %v", key, got, err)
		}
	}
}
