// SPDX-License-Identifier: Apache-2.0

package adversary_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

// tricks are texts that look like others, or hide something. None is a name.
var tricks = []string{
	"ｃａｎａｒｙ", "cana\u200bry", "canary\u202e", "\u0441anary", "canary\x00", "cànary", "ca\u0300nary", "canary\ufeff", "canary\n",
	"\u2028canary",
	"CANARY\u0130", "canary\U000e0041", "🐤", "a\u034f\u034f\u034f",
}

// broken are texts that are not UTF-8, in JSON.
var broken = []string{"canary\xff", "\xed\xa0\x80", "\xc0\xaf", `canary\ud800`, `\udfff\ud800`}

func unicodeNames(ctx context.Context, a *attacker) error {
	by := a.client()
	for _, b := range broken {
		for _, field := range []string{"claimKey", "env", "user", "team"} {
			a.ask(ctx, by, "POST", a.url("/v1/sandboxes"), a.Tokens["mallory"], `{"env":"spare","`+field+`":"`+b+`"}`)
		}
	}
	var all []call
	for _, t := range tricks {
		for _, r := range []*create{
			{Env: spareEnv, ClaimKey: t}, {Env: t}, {Env: spareEnv, Namespace: t}, {Env: spareEnv, Image: t},
			{Env: spareEnv, Clusters: []string{t}},
			{Env: spareEnv, Labels: map[string]string{t: "a"}}, {Env: spareEnv, Labels: map[string]string{"a": t}}, {Env: spareEnv, Team: t},
		} {
			all = append(all, claiming(r))
		}
		all = append(all, does(clients.GetClaim, &sandboxv1.GetClaimRequest{Namespace: namespace, ClaimKey: t}),
			does(clients.GetSandbox, &sandboxv1.GetSandboxRequest{Id: t}))
	}
	return inTurn("mallory", all...)(ctx, a)
}

func endTimes(ctx context.Context, a *attacker) error {
	var list []*create
	for _, d := range []*durationpb.Duration{
		{Seconds: math.MaxInt64}, {Seconds: math.MinInt64}, {Seconds: math.MaxInt64, Nanos: math.MaxInt32}, {Seconds: 1, Nanos: -1},
		{Nanos: math.MinInt32},
		{Seconds: 315_576_000_001}, {Seconds: -1}, durationpb.New(math.MaxInt64),
	} {
		list = append(list, &create{Env: spareEnv, StartupTimeout: d}, &create{Env: spareEnv, MaxLifetime: d},
			&create{Env: spareEnv, IdleTimeout: d},
			&create{Env: spareEnv, FirstActivityTimeout: d})
	}
	return requests(list...)(ctx, a)
}

func foreignLabels(ctx context.Context, a *attacker) error {
	var list []*create
	for _, key := range []string{
		"app.kubernetes.io/name", "agentbox.navix.sh/claim-key-hash", "agentbox.navix.sh/sandbox-id", "tenant.navix.sh/a",
		"kubernetes.io/metadata.name",
		"pod-template-hash/", "/", "a/b/c", strings.Repeat("a", 64),
	} {
		list = append(list, &create{Env: spareEnv, Labels: map[string]string{key: "x"}})
	}
	many := map[string]string{}
	for i := range 3000 {
		many[fmt.Sprint("k", i)] = "v"
	}
	return requests(append(list, &create{Env: spareEnv, Labels: many})...)(ctx, a)
}

// otherImages claims images that neither Env nor template allows, some by names that look alike.
func otherImages(ctx context.Context, a *attacker) error {
	var list []*create
	for _, image := range []string{
		"registry.example/evil", "registry.example/python:3.14", "registry.example:443/python:3.13", "registry.example/python/evil:3.13",
		"python:3.13",
		"registry.example.evil.example/python:3.13", "registry.example/python:3.13@sha256:" + strings.Repeat("0f", 32),
	} {
		list = append(list, &create{Env: spareEnv, Image: image}, &create{Env: spareEnv, Image: image, ClaimKey: "image"})
	}
	return requests(list...)(ctx, a)
}

func othersSandboxes(ctx context.Context, a *attacker) error {
	return inTurn("mallory",
		does(clients.GetSandbox, &sandboxv1.GetSandboxRequest{Id: a.Canary}),
		does(clients.ReleaseSandbox, &sandboxv1.ReleaseSandboxRequest{Id: a.Canary}),
		does(clients.PauseSandbox, &sandboxv1.PauseSandboxRequest{Id: a.Canary}),
		does(clients.TouchSandbox, &sandboxv1.TouchSandboxRequest{Id: a.Canary}),
		does(clients.UpdateSandbox, &sandboxv1.UpdateSandboxRequest{Id: a.Canary, MaxLifetime: durationpb.New(time.Second)}),
	)(ctx, a)
}

func othersKeys(ctx context.Context, a *attacker) error {
	return inTurn("mallory",
		does(clients.GetClaim, &sandboxv1.GetClaimRequest{Namespace: namespace, ClaimKey: canaryKey}),
		does(clients.GetClaim, &sandboxv1.GetClaimRequest{Namespace: namespace, ClaimKey: canaryKey, Team: "ann"}),
		does(clients.CancelClaim, &sandboxv1.CancelClaimRequest{Namespace: namespace, ClaimKey: canaryKey, Team: "ann"}),
		does(clients.CancelClaim, &sandboxv1.CancelClaimRequest{Namespace: namespace, ClaimKey: canaryKey}),
	)(ctx, a)
}

func othersNames(ctx context.Context, a *attacker) error {
	return requests(&create{Env: spareEnv, Team: "ann"}, &create{Env: spareEnv, Team: "ann", ClaimKey: canaryKey},
		&create{Env: spareEnv, Namespace: "mallory"},
		&create{Env: spareEnv, Namespace: "kube-system"})(ctx, a)
}

// boundAdmin calls for all with an administrator's key that is bound to a team.
func boundAdmin(ctx context.Context, a *attacker) error {
	return inTurn("mallory-admin",
		does(clients.DrainCluster, &sandboxv1.DrainClusterRequest{Id: "west"}),
		does(clients.ForgetCluster, &sandboxv1.ForgetClusterRequest{Id: "west"}),
		func(ctx context.Context, c clients) error {
			stream, err := c.BackupHub(ctx, &sandboxv1.BackupHubRequest{})
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		},
		does(clients.AcceptLoss, &sandboxv1.AcceptLossRequest{}),
		does(clients.RefreshEnv, &sandboxv1.RefreshEnvRequest{Namespace: namespace, Name: honestEnv}),
	)(ctx, a)
}

func smallScope(ctx context.Context, a *attacker) error {
	return inTurn("mallory-reads",
		func(ctx context.Context, c clients) error { return c.create(ctx, &create{Env: spareEnv}) },
		does(clients.ReleaseSandbox, &sandboxv1.ReleaseSandboxRequest{Id: a.Sandbox}),
		does(clients.CancelClaim, &sandboxv1.CancelClaimRequest{Namespace: namespace, ClaimKey: canaryKey}),
	)(ctx, a)
}

func inventedIDs(ctx context.Context, a *attacker) error {
	return calls(func(ctx context.Context, c clients, i int) error {
		ids := []string{
			fmt.Sprintf("01hzzzzzzzzzzzzzzzzzz%05d-west", i%100_000), fmt.Sprintf("01hzzzzzzzzzzzzzzzzzz%05d-nowhere", i%100_000),
			strings.Repeat("0", 200<<10),
			a.Canary[:len(a.Canary)-1], a.Canary + "-east", strings.ToUpper(a.Canary),
		}
		_, err := c.ReleaseSandbox(ctx, &sandboxv1.ReleaseSandboxRequest{Id: ids[i%len(ids)]})
		return err
	})(ctx, a)
}

// lists reads the longest lists there are, with odd pages.
func lists(ctx context.Context, a *attacker) error {
	return inTurn("mallory",
		does(clients.ListSandboxes, &sandboxv1.ListSandboxesRequest{PageSize: 1000}),
		does(clients.ListSandboxes, &sandboxv1.ListSandboxesRequest{PageToken: strings.Repeat("z", 100_000)}),
		does(clients.ListSandboxes, &sandboxv1.ListSandboxesRequest{PageSize: math.MinInt32,
			EndedAfter: &timestamppb.Timestamp{Seconds: math.MaxInt64}}),
		does(clients.ListEnvs, &sandboxv1.ListEnvsRequest{}),
		does(clients.ListClusters, &sandboxv1.ListClustersRequest{}),
	)(ctx, a)
}

// changes changes the adversary's own sandbox as often as it can.
func changes(ctx context.Context, a *attacker) error {
	return calls(func(ctx context.Context, c clients, i int) (err error) {
		switch i % 3 {
		case 0:
			_, err = c.TouchSandbox(ctx, &sandboxv1.TouchSandboxRequest{Id: a.Sandbox})
		case 1:
			_, err = c.GetSandbox(ctx, &sandboxv1.GetSandboxRequest{Id: a.Sandbox})
		default:
			_, err = c.UpdateSandbox(ctx, &sandboxv1.UpdateSandboxRequest{Id: a.Sandbox,
				MaxLifetime: durationpb.New(time.Duration(i+3600) * time.Second)})
		}
		return err
	})(ctx, a)
}
