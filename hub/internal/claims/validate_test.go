// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/serve"
)

type create = sandboxv1.CreateSandboxRequest

func TestResolveRefuses(t *testing.T) {
	many := map[string]string{}
	for i := range maxLabels + 1 {
		many[fmt.Sprint("k", i)] = "v"
	}
	for name, tc := range map[string]struct {
		change func(*create)
		field  string // of the error
	}{
		"no env":                  {func(r *create) { r.Env = "" }, "env"},
		"bad env":                 {func(r *create) { r.Env = "A_b" }, "env"},
		"bad namespace":           {func(r *create) { r.Namespace = "a.b" }, "namespace"},
		"image with a space":      {func(r *create) { r.Image = "a b" }, "image"},
		"image in capitals":       {func(r *create) { r.Image = "reg.example/App" }, "image"},
		"image without name":      {func(r *create) { r.Image = ":v1" }, "image"},
		"image with short digest": {func(r *create) { r.Image = "app@sha256:abc" }, "image"},
		"long image":              {func(r *create) { r.Image = strings.Repeat("a", maxImage+1) }, "image"},
		"multiplier":              {func(r *create) { r.Multiplier = -1 }, "multiplier"},
		"instance type":           {func(r *create) { r.InstanceType = "a\n" }, "instanceType"},
		"scaling group":           {func(r *create) { r.ScalingGroup = "\x00" }, "scalingGroup"},
		"cluster":                 {func(r *create) { r.Clusters = []string{"ok", "Not-ok"} }, "clusters[1]"},
		"cluster twice":           {func(r *create) { r.Clusters = []string{"a", "b", "a"} }, "clusters[2]"},
		"cluster of 31":           {func(r *create) { r.Clusters = []string{strings.Repeat("a", 31)} }, "clusters[0]"},
		"requireClusters":         {func(r *create) { r.RequireClusters = true }, "requireClusters"},
		"long claim key":          {func(r *create) { r.ClaimKey = strings.Repeat("k", maxClaimKey+1) }, "claimKey"},
		"claim key in UTF-8":      {func(r *create) { r.ClaimKey = "schlüssel" }, "claimKey"},
		"claim key with newline":  {func(r *create) { r.ClaimKey = "a\nb" }, "claimKey"},
		"wait NONE without key":   {func(r *create) { r.Wait = noWait }, "wait"},
		"wait of a newer API":     {func(r *create) { r.Wait = 9 }, "wait"},
		"team with NUL":           {func(r *create) { r.Team = "a\x00b" }, "team"},
		"long user":               {func(r *create) { r.User = strings.Repeat("u", maxName+1) }, "user"},
		"reserved label":          {func(r *create) { r.Labels = map[string]string{"scheduling.navix.sh/user": "x"} }, "labels[scheduling.navix.sh/user]"},
		"label below reserved":    {func(r *create) { r.Labels = map[string]string{"x.agentbox.io/y": "x"} }, "labels[x.agentbox.io/y]"},
		"label key":               {func(r *create) { r.Labels = map[string]string{"a b": "x"} }, "labels[a b]"},
		"label value":             {func(r *create) { r.Labels = map[string]string{"a": "x y"} }, "labels[a]"},
		"many labels":             {func(r *create) { r.Labels = many }, "labels"},
		"metadata without key":    {func(r *create) { r.Metadata = map[string]string{"": "x"} }, "metadata"},
		"much metadata":           {func(r *create) { r.Metadata = map[string]string{"a": strings.Repeat("x", maxMetadata)} }, "metadata"},
		"zero startup timeout":    {func(r *create) { r.StartupTimeout = durationpb.New(0) }, "startupTimeout"},
		"endless startup timeout": {func(r *create) { r.StartupTimeout = &durationpb.Duration{Seconds: 1 << 60} }, "startupTimeout"},
		"negative idle timeout":   {func(r *create) { r.IdleTimeout = durationpb.New(-1) }, "idleTimeout"},
		"endless idle timeout":    {func(r *create) { r.IdleTimeout = &durationpb.Duration{Seconds: 1 << 60} }, "idleTimeout"},
		"a life of over a year":   {func(r *create) { r.MaxLifetime = durationpb.New(serve.MaxTimeout + 1) }, "maxLifetime"},
		"negative first activity": {func(r *create) { r.FirstActivityTimeout = durationpb.New(-1) }, "firstActivityTimeout"},
		"first activity of a key": {func(r *create) { r.FirstActivityTimeout, r.ClaimKey = durationpb.New(1), "k" }, "firstActivityTimeout"},
		"an empty hook":           {func(r *create) { r.PostStartHooks = []*structpb.Struct{{}} }, "postStartHooks[0]"},
	} {
		r := &create{Env: "demo"}
		tc.change(r)
		_, err := resolve(r, Principal{})
		if err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		e := problem.FromError(err)
		if e.Reason != problem.Invalid || len(e.Fields) != 1 || e.Fields[0].Field != tc.field || e.Fields[0].Valid == "" {
			t.Errorf("%s: %v with fields %+v, want %s", name, err, e.Fields, tc.field)
		}
	}
}

func TestResolveAccepts(t *testing.T) {
	for _, image := range []string{
		"app", "app:v1", "library/app:v1", "registry.example/team/app", "registry.example:5000/a/b_c/d__e/f-g.h:V1.2-x_y",
		"localhost:5000/app@sha256:" + strings.Repeat("0f", 32), "app:v1@sha256:" + strings.Repeat("0f", 32), "ghcr.io/a/b.c",
	} {
		r := &create{Env: "demo.v1", Image: image, FirstActivityTimeout: durationpb.New(1), IdleTimeout: durationpb.New(0),
			MaxLifetime: durationpb.New(serve.MaxTimeout), Labels: map[string]string{"example.com/a": "", "b": "c"}}
		got, err := resolve(r, Principal{Team: "t", User: "u", Namespaces: []string{"default"}})
		if err != nil {
			t.Errorf("%s: %v", image, err)
			continue
		}
		if got.GetNamespace() != "default" || got.GetTeam() != "t" || got.GetUser() != "u" || r.GetNamespace() != "" {
			t.Errorf("resolved to %v, from %v", got, r)
		}
	}
}

func TestEveryFaultIsNamedAtOnce(t *testing.T) {
	_, err := resolve(&create{Namespace: "A", Env: "B", Image: "C D", ClaimKey: "\x01"}, Principal{})
	e := problem.FromError(err)
	var fields []string
	for _, f := range e.Fields {
		fields = append(fields, f.Field)
	}
	slices.Sort(fields)
	if got := strings.Join(fields, " "); got != "claimKey env image namespace" {
		t.Errorf("named %s", got)
	}
}

func TestClusterOf(t *testing.T) {
	for id, want := range map[string]string{
		"01arz3ndektsv4rrffq69g5fav-east":      "east",
		"01arz3ndektsv4rrffq69g5fav-eu-west-1": "eu-west-1",
		"01ARZ3NDEKTSV4RRFFQ69G5FAV-east":      "",
		"01arz3ndektsv4rrffq69g5fau-east":      "", // no u in a ULID
		"01arz3ndektsv4rrffq69g5fav-":          "",
		"01arz3ndektsv4rrffq69g5fav-East":      "",
		"01arz3ndektsv4rrffq69g5fa-east":       "",
		"":                                     "",
	} {
		if got, ok := clusterOf(id); got != want || ok != (want != "") {
			t.Errorf("%q: %q %t", id, got, ok)
		}
	}
}

// FuzzResolve: whatever comes over the wire is refused with a reason, or comes out within its bounds and stays as it is
// when it is resolved again, as a retry's request is.
func FuzzResolve(f *testing.F) {
	for _, r := range []*create{
		{Env: "demo"},
		{Env: "demo", ClaimKey: "k", Image: "app:v1", Clusters: []string{"a"}, Labels: map[string]string{"a": "b"}},
		{Env: "demo", StartupTimeout: durationpb.New(1), Team: "t", Wait: noWait, ClaimKey: "k"},
		{Namespace: "\xff", Env: strings.Repeat("x", 300)},
	} {
		f.Add(marshal(r))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := &create{}
		if proto.Unmarshal(data, r) != nil {
			return
		}
		got, err := resolve(r, Principal{Team: "t"})
		if err != nil {
			if e := problem.FromError(err); e.Reason == problem.Internal || len(e.Message) > 1<<20 {
				t.Fatalf("%v: %v", r, err)
			}
			return
		}
		if got.GetTeam() != "t" || got.GetNamespace() == "" || len(keyHash(got.GetTeam(), got.GetNamespace(), got.GetClaimKey())) != 32 {
			t.Fatalf("%v resolved to %v", r, got)
		}
		again, err := resolve(got, Principal{Team: "t"})
		if err != nil || !proto.Equal(got, again) {
			t.Fatalf("%v resolved again to %v, %v", got, again, err)
		}
	})
}

// TestKeyHashIsWhatLabelsCarry pins the hash: it is in the labels of running Pods and in stores.
func TestKeyHashIsWhatLabelsCarry(t *testing.T) {
	// printf 't\0ns\0k' | sha256sum | cut -c-32
	if got := keyHash("t", "ns", "k"); got != "e0a2fa2b7b61d5c77a62f520373e8cf6" {
		t.Errorf("%s", got)
	}
	if keyHash("a", "b", "") == keyHash("a", "", "b") || keyHash("", "ab", "c") == keyHash("a", "b", "c") {
		t.Error("parts run into each other")
	}
}
