// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/problem"
)

// recorder is a server that records its calls.
type recorder struct {
	sandboxv1.UnimplementedSandboxesServer
	calls []proto.Message
}

func (r *recorder) did(call proto.Message, id string) (*sandboxv1.Sandbox, error) {
	r.calls = append(r.calls, call)
	if id == "missing" {
		return nil, problem.New(problem.NotFound, "no sandbox")
	}
	return &sandboxv1.Sandbox{Id: id, Phase: sandboxv1.Phase_RUNNING}, nil
}

func (r *recorder) CreateSandbox(_ context.Context, in *sandboxv1.CreateSandboxRequest) (*sandboxv1.Sandbox, error) {
	return r.did(in, "new")
}

func (r *recorder) UpdateSandbox(_ context.Context, in *sandboxv1.UpdateSandboxRequest) (*sandboxv1.Sandbox, error) {
	return r.did(in, in.GetId())
}

func (r *recorder) TouchSandbox(_ context.Context, in *sandboxv1.TouchSandboxRequest) (*sandboxv1.Sandbox, error) {
	return r.did(in, in.GetId())
}

func (r *recorder) PauseSandbox(_ context.Context, in *sandboxv1.PauseSandboxRequest) (*sandboxv1.Sandbox, error) {
	return r.did(in, in.GetId())
}

func (r *recorder) ResumeSandbox(_ context.Context, in *sandboxv1.ResumeSandboxRequest) (*sandboxv1.Sandbox, error) {
	return r.did(in, in.GetId())
}

func TestPhaseTellsOfAPause(t *testing.T) {
	for want, p := range map[string]*sandboxv1.Pause{
		"RUNNING":                      nil,
		"RUNNING (PAUSED)":             {State: sandboxv1.Pause_PAUSED},
		"RUNNING (RESUMING, Deferred)": {State: sandboxv1.Pause_RESUMING, Reason: "Deferred"},
	} {
		if got := phaseOf(&sandboxv1.Sandbox{Phase: sandboxv1.Phase_RUNNING, Pause: p}); got != want {
			t.Errorf("%v is shown as %q, want %q", p, got, want)
		}
	}
}

func TestTimeoutsOnTheCommandLine(t *testing.T) {
	r := &recorder{}
	address := serving(t, func(s *grpc.Server) { sandboxv1.RegisterSandboxesServer(s, r) })
	hour, none := durationpb.New(time.Hour), durationpb.New(0)
	ready := sandboxv1.CreateSandboxRequest_READY
	for line, want := range map[string]struct {
		calls []proto.Message
		says  string // of the error; empty: none
	}{
		"touch a missing b": {[]proto.Message{
			&sandboxv1.TouchSandboxRequest{Id: "a"}, &sandboxv1.TouchSandboxRequest{Id: "missing"}, &sandboxv1.TouchSandboxRequest{Id: "b"},
		}, "touching missing"},
		"pause a b":                  {[]proto.Message{&sandboxv1.PauseSandboxRequest{Id: "a"}, &sandboxv1.PauseSandboxRequest{Id: "b"}}, ""},
		"resume missing":             {[]proto.Message{&sandboxv1.ResumeSandboxRequest{Id: "missing"}}, "resuming missing"},
		"update a --idle-timeout 1h": {[]proto.Message{&sandboxv1.UpdateSandboxRequest{Id: "a", IdleTimeout: hour}}, ""},
		"update a --idle-timeout 0 --max-lifetime 60m": {[]proto.Message{&sandboxv1.UpdateSandboxRequest{Id: "a", IdleTimeout: none,
			MaxLifetime: hour}}, ""},
		"update a":                     {nil, "idle-timeout"},
		"update a --max-lifetime soon": {nil, "soon"},
		"create --env py":              {[]proto.Message{&sandboxv1.CreateSandboxRequest{Namespace: "default", Env: "py", Wait: ready}}, ""},
		"create --env py --first-activity-timeout 0": {[]proto.Message{&sandboxv1.CreateSandboxRequest{Namespace: "default", Env: "py",
			Wait: ready, FirstActivityTimeout: none}}, ""},
		"create --env py --idle-timeout 1h --max-lifetime 1h": {[]proto.Message{
			&sandboxv1.CreateSandboxRequest{Namespace: "default", Env: "py", Wait: ready, IdleTimeout: hour, MaxLifetime: hour},
		}, ""},
	} {
		r.calls = nil
		_, err := atollctl(t, append(strings.Fields(line), "--server", address)...)
		if (err != nil) != (want.says != "") || err != nil && !strings.Contains(err.Error(), want.says) {
			t.Errorf("%s: %v, want an error that says %q", line, err, want.says)
		}
		if diff := cmp.Diff(want.calls, r.calls, protocmp.Transform()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", line, diff)
		}
	}
}
