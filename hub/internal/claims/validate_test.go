// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/must"
	"navix.sh/atoll/hub/internal/ledger"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/pkg/problem"
)

type create = sandboxv1.CreateSandboxRequest

func TestResolve(t *testing.T) {
	r := &create{Env: "demo.v1", FirstActivityTimeout: durationpb.New(1)}
	got, err := resolve(r, principal.Principal{Team: "t", User: "u", Namespaces: []string{"default"}})
	must.Succeed(t, err)
	if got.GetNamespace() != "default" || got.GetTeam() != "t" || got.GetUser() != "u" || r.GetNamespace() != "" {
		t.Errorf("resolved to %v, from %v", got, r)
	}
	if _, err := resolve(&create{Env: "A_b", ClaimKey: "k"}, principal.Principal{}); problem.FromError(err).Reason != problem.Invalid ||
		problem.FromError(err).ClaimKey != "k" {
		t.Errorf("a bad request with a key is answered %v", err)
	}
}

// FuzzResolve: any wire input is refused with a reason, or is within bounds after resolving and stays unchanged when it is
// resolved again, like a retry's request.
func FuzzResolve(f *testing.F) {
	for _, r := range []*create{
		{Env: "demo"},
		{Env: "demo", ClaimKey: "k", Image: "app:v1", Clusters: []string{"a"}, Labels: map[string]string{"a": "b"}},
		{Env: "demo", StartupTimeout: durationpb.New(1), Team: "t", Wait: noWait, ClaimKey: "k"},
		{Namespace: "\xff", Env: strings.Repeat("x", 300)},
	} {
		f.Add(ledger.Marshal(r))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := &create{}
		if proto.Unmarshal(data, r) != nil {
			return
		}
		got, err := resolve(r, principal.Principal{Team: "t", AllNamespaces: true})
		if err != nil {
			if e := problem.FromError(err); e.Reason == problem.Internal || len(e.Message) > 1<<20 {
				t.Fatalf("%v: %v", r, err)
			}
			return
		}
		if got.GetTeam() != "t" || got.GetNamespace() == "" || len(ledger.KeyHash(got.GetTeam(), got.GetNamespace(), got.GetClaimKey())) != 32 {
			t.Fatalf("%v resolved to %v", r, got)
		}
		again, err := resolve(got, principal.Principal{Team: "t", AllNamespaces: true})
		if err != nil || !proto.Equal(got, again) {
			t.Fatalf("%v resolved again to %v, %v", got, again, err)
		}
	})
}

func TestCredentialsAsTextAreRefusedIfAsked(t *testing.T) {
	hooks := func(value string) []*structpb.Struct {
		s := &structpb.Struct{}
		must.Succeed(t, protojson.Unmarshal([]byte(`{"http":{"port":80,"headers":{"X":"a","authorization":`+value+`}}}`), s))
		return []*structpb.Struct{s}
	}
	const reference = `{"valueFrom":{"secretKeyRef":{"name":"s","key":"k"}}}`
	for _, c := range []struct {
		strict  bool
		value   string
		refused bool
	}{{false, `"hunter2"`, false}, {true, `"hunter2"`, true}, {true, reference, false}} {
		s := &Service{strict: c.strict}
		req, err := s.resolve(&create{Env: "demo", ClaimKey: "k", PostStartHooks: hooks(c.value)},
			principal.Principal{AllTeams: true, AllNamespaces: true})
		if (err != nil) != c.refused || !c.refused && req.GetEnv() != "demo" {
			t.Errorf("%+v: %v", c, err)
		}
		if e := problem.FromError(err); c.refused && (e.Reason != problem.Invalid ||
			e.Fields[0].Field != "postStartHooks[0].http.headers.authorization" ||
			strings.Contains(fmt.Sprint(e, e.Fields), "hunter2")) {
			t.Errorf("refused with %v, %v", e, e.Fields)
		}
	}
}
