// SPDX-License-Identifier: Apache-2.0

package adversary_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

// tenantRows attack with a tenant's API key.
func tenantRows() []row {
	bad := []string{"INVALID"}
	return append(reachRows(), []row{
		{name: "many-hooks", role: tenant, told: []string{"400.*"}, never: []string{"[25].*"}, attack: loud(func(a *attacker) string {
			return post(a.Tokens["mallory"], `{"env":"spare","postStartHooks":[{}`+strings.Repeat(",{}", 60_000)+"]}")
		})},
		{name: "large-bodies", role: tenant, told: []string{"400.*|413.*"}, never: []string{"[25].*"}, attack: loud(func(a *attacker) string {
			return post(a.Tokens["mallory"], `{"env":"spare","image":"`+strings.Repeat("x", much)+`"}`)
		})},
		{name: "nested-json", role: tenant, told: []string{"400.*"}, never: []string{"[25].*"}, attack: loud(func(a *attacker) string {
			return post(a.Tokens["mallory"], `{"env":"spare","postStartHooks":[{"a":`+strings.Repeat("[", 100_000)+
				strings.Repeat("]", 100_000)+"}]}")
		})},
		{name: "known-gzip-bodies", role: tenant, told: []string{"400.*|415.*"}, never: []string{"[25].*"},
			attack: loud(func(a *attacker) string {
				return post(a.Tokens["mallory"], zipped(bytes.Repeat([]byte("{},"), much/3)), "Content-Encoding: gzip")
			})},
		{name: "known-gzip-calls", role: tenant, told: bad, never: []string{"OK"}, attack: gzipCalls("mallory")},
		{name: "unfinished-calls", role: tenant, told: []string{"RATE_LIMITED|ResourceExhausted|Canceled|DeadlineExceeded"},
			attack: unfinishedCalls},
		{name: "call-headers", role: tenant, told: []string{"closed"}, never: []string{"HEADERS.*"}, attack: callHeaders},
		{name: "waiting-claims", role: tenant, told: []string{"QUEUE_FULL|NO_CAPACITY|RATE_LIMITED|DEADLINE|DeadlineExceeded"},
			never: []string{"OK"}, attack: waitingClaims},
		{name: "left-claims", role: tenant, told: []string{"DeadlineExceeded|Canceled"}, attack: leftClaims},
		{name: "many-keys", role: tenant, told: []string{"RATE_LIMITED"}, attack: manyKeys},
		{name: "one-key", role: tenant, told: []string{"OK", "CLAIM_KEY_CONFLICT"}, attack: oneKey},
		{name: "claim-churn", role: tenant, told: []string{"OK"}, attack: claimChurn},
		{name: "invented-users", role: tenant, told: []string{"OK|QUEUE_FULL|RATE_LIMITED"}, attack: inventedUsers},
		{name: "unicode-names", role: tenant, told: append(bad, "400.*"), never: []string{"OK", "2.*"}, attack: unicodeNames},
		{name: "end-times", role: tenant, told: bad, never: []string{"OK"}, attack: endTimes},
		{name: "foreign-labels", role: tenant, told: bad, never: []string{"OK"}, attack: foreignLabels},
		{name: "others-sandboxes", role: tenant, told: []string{"NOT_FOUND"}, never: []string{"OK"}, attack: othersSandboxes},
		{name: "others-keys", role: tenant, told: []string{"NOT_FOUND"}, never: []string{"OK"}, attack: othersKeys},
		{name: "others-names", role: tenant, told: []string{"FORBIDDEN|NOT_FOUND"}, never: []string{"OK"}, attack: othersNames},
		{name: "bound-admin", role: tenant, told: []string{"FORBIDDEN"}, never: []string{"OK"}, attack: boundAdmin},
		{name: "small-scope", role: tenant, told: []string{"FORBIDDEN"}, never: []string{"OK"}, attack: smallScope},
		{name: "other-images", role: tenant, told: []string{"FORBIDDEN"}, never: []string{"OK"}, attack: otherImages},
		{name: "invented-ids", role: tenant, told: []string{"NOT_FOUND|INVALID"}, never: []string{"OK"}, attack: inventedIDs},
		{name: "lists", role: tenant, told: []string{"OK"}, attack: lists},
		{name: "unread-lists", role: tenant, told: []string{"closed|silence"}, attack: unreadLists},
		{name: "changes", role: tenant, told: []string{"OK"}, attack: changes},
	}...)
}

type create = sandboxv1.CreateSandboxRequest

// clients are the adversary's, by one key.
type clients struct {
	sandboxv1.SandboxesClient
	sandboxv1.ClaimsClient
	sandboxv1.ClustersClient
	sandboxv1.EnvsClient
	sandboxv1.HubClient
	*attacker
}

// create claims in the default namespace.
func (c clients) create(ctx context.Context, r *create) error {
	r.Namespace = namespace
	s, err := c.CreateSandbox(ctx, r)
	if err == nil && r.GetEnv() == spareEnv {
		_, _ = c.ReleaseSandbox(context.WithoutCancel(ctx), &sandboxv1.ReleaseSandboxRequest{Id: s.GetId()})
	}
	return err
}

// as returns clients with a key. The connection ends with ctx.
func (a *attacker) as(ctx context.Context, key string, options ...grpc.DialOption) (clients, error) {
	conn, err := a.grpc(a.Tokens[key], options...)
	if err != nil {
		return clients{}, err
	}
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	return clients{
		sandboxv1.NewSandboxesClient(conn), sandboxv1.NewClaimsClient(conn), sandboxv1.NewClustersClient(conn), sandboxv1.NewEnvsClient(conn),
		sandboxv1.NewHubClient(conn), a,
	}, nil
}

// callsAs makes one call after the other on 16 goroutines, and tells each result.
func callsAs(key string, call func(ctx context.Context, c clients, i int) error) func(context.Context, *attacker) error {
	return func(ctx context.Context, a *attacker) error {
		c, err := a.as(context.WithoutCancel(ctx), key)
		if err != nil {
			return err
		}
		swarm(ctx, 16, func(int) {
			n := int(a.attempts.Add(1))
			if err := call(ctx, c, n); ctx.Err() == nil {
				a.tellError(err)
			}
		})
		return nil
	}
}

func calls(call func(ctx context.Context, c clients, i int) error) func(context.Context, *attacker) error {
	return callsAs("mallory", call)
}

// call is one call of the hub's API.
type call = func(ctx context.Context, c clients) error

// does is a call of a method with a request.
func does[R, S any](method func(clients, context.Context, R, ...grpc.CallOption) (S, error), request R) call {
	return func(ctx context.Context, c clients) error {
		_, err := method(c, ctx, request)
		return err
	}
}

// claiming is a claim, in the default namespace unless it names another.
func claiming(r *create) call {
	if r.Namespace == "" {
		r.Namespace = namespace
	}
	return does(clients.CreateSandbox, r)
}

// inTurn makes calls in turn.
func inTurn(key string, all ...call) func(context.Context, *attacker) error {
	return callsAs(key, func(ctx context.Context, c clients, i int) error { return all[i%len(all)](ctx, c) })
}

// requests are claims, each of which is made in turn.
func requests(list ...*create) func(context.Context, *attacker) error {
	var all []call
	for _, r := range list {
		all = append(all, claiming(r))
	}
	return inTurn("mallory", all...)
}

// callHeaders makes calls whose headers exceed what the hub says that it takes, by many fields or by a long one. A gRPC client does not
// send them.
func callHeaders(ctx context.Context, a *attacker) error {
	const most = 16 << 10 // of a frame
	return h2flood(func(c *h2, i uint32) error {
		more := []string{"authorization", "Bearer " + a.Tokens["mallory"]}
		if i%16 == 15 {
			more = append(more, "x", strings.Repeat("x", 60<<10))
		} else {
			for n := range 60 {
				more = append(more, fmt.Sprintf("x-%d-%d", i, n), strings.Repeat("x", 700))
			}
		}
		fields := calling(createMethod, more...)
		err := c.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: fields[:most], EndStream: true})
		for rest := fields[most:]; err == nil && len(rest) > 0; rest = rest[min(most, len(rest)):] {
			err = c.WriteContinuation(2*i+1, len(rest) <= most, rest[:min(most, len(rest))])
		}
		return err
	})(ctx, a)
}

// unfinishedCalls begins calls, more than a caller may have, and ends none.
func unfinishedCalls(ctx context.Context, a *attacker) error {
	var all sync.WaitGroup
	for range a.size(4, 12) {
		conn, err := a.grpc(a.Tokens["mallory"])
		if err != nil {
			return err
		}
		defer conn.Close()
		for range 950 {
			all.Go(func() { a.unfinished(ctx, conn, createMethod) })
		}
	}
	all.Wait()
	return nil
}

// waitingClaims waits for Pods that never come.
func waitingClaims(ctx context.Context, a *attacker) error {
	c, err := a.as(ctx, "mallory")
	if err != nil {
		return err
	}
	atOnce(a.size(900, 9000), func(i int) {
		a.attempts.Add(1)
		a.tellError(c.create(ctx, &create{Env: fullEnv, StartupTimeout: durationpb.New(24 * time.Hour), User: fmt.Sprint(i)}))
	})
	return nil
}

// leftClaims leaves each claim at once.
func leftClaims(ctx context.Context, a *attacker) error {
	return calls(func(ctx context.Context, c clients, i int) error {
		short, cancel := context.WithTimeout(ctx, time.Duration(1+i%8)*time.Millisecond)
		defer cancel()
		env := spareEnv
		if i%2 == 0 {
			env = fullEnv
		}
		return c.create(short, &create{Env: env, FirstActivityTimeout: durationpb.New(time.Second)})
	})(ctx, a)
}

// manyKeys fills the ledger with keys of claims that wait, and are refused.
func manyKeys(ctx context.Context, a *attacker) error {
	c, err := a.as(ctx, "hoarder")
	if err != nil {
		return err
	}
	swarm(ctx, 256, func(int) {
		n := a.attempts.Add(1)
		if int(n) > a.size(1<<30, 100_000) {
			<-ctx.Done()
			return
		}
		err := c.create(ctx, &create{
			Env: fullEnv, Wait: sandboxv1.CreateSandboxRequest_NONE, StartupTimeout: durationpb.New(3 * time.Second),
			ClaimKey: fmt.Sprintf("flood-%d", n), Metadata: map[string]string{"a": strings.Repeat("x", 20<<10)},
		})
		if ctx.Err() == nil {
			a.tellError(err)
		}
	})
	return nil
}

// oneKey claims with one key from many callers, some with another request. These begin when the key has its sandbox; because the other
// Env has none.
func oneKey(ctx context.Context, a *attacker) error {
	key := fmt.Sprint("one-", time.Now().UnixNano())
	var taken atomic.Bool
	return calls(func(ctx context.Context, c clients, i int) error {
		r := &create{Namespace: namespace, Env: spareEnv, ClaimKey: key}
		if i%3 == 0 && taken.Load() {
			r.Env = fullEnv
		}
		_, err := c.CreateSandbox(ctx, r)
		if err == nil {
			taken.Store(true)
		}
		return err
	})(ctx, a)
}

// claimChurn claims and releases as fast as it can.
func claimChurn(ctx context.Context, a *attacker) error {
	c, err := a.as(context.WithoutCancel(ctx), "mallory")
	if err != nil {
		return err
	}
	swarm(ctx, 4, func(int) {
		a.attempts.Add(1)
		if err := c.create(ctx, &create{Env: spareEnv, NoQueue: true}); ctx.Err() == nil {
			a.tellError(err)
		}
	})
	return nil
}

// inventedUsers claims for a new user each time, to have the turns of many.
func inventedUsers(ctx context.Context, a *attacker) error {
	return calls(func(ctx context.Context, c clients, i int) error {
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		return c.create(short, &create{Env: spareEnv, User: fmt.Sprintf("user-%d", i)})
	})(ctx, a)
}
