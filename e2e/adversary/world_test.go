// SPDX-License-Identifier: Apache-2.0

package adversary_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/e2e/plane"
	"navix.sh/atoll/e2e/stack"
	"navix.sh/atoll/e2e/wait"
)

const (
	namespace = "default"
	honestEnv = "honest"
	spareEnv  = "spare"
	fullEnv   = "full"
	nodeEnv   = "node"
	// attackerRate is how many claims a second the adversary's team may make: a quarter of the honest ones.
	attackerRate = 5
	// hardLimit is the private memory that the kernel lets a program have. Its GOMEMLIMIT is three quarters of -rss; because a
	// program may use what is free for garbage, and only the rest is an attack's cost.
	hardLimit = 2 << 30
	// patience bounds every wait for the federation.
	patience = 2 * time.Minute
	// canaryKey is the claim key of a sandbox that no attack may change.
	canaryKey = "canary"
)

// teams are the honest callers'. The first has the canary.
var teams = []string{"ann", "bob", "cleo", "dan", "eve", "fay"}

var honestClusters = []string{"east", "west"}

// world is a federation under attack.
type world struct {
	*stack.Stack
	dir, logDir string
	chosen      []row
	set         *plane.Set
	admin       *stack.Client
	link        string            // address of the hub's link
	tokens      map[string]string // API keys by name
	callers     []*caller
	own, node   *sandboxv1.Sandbox // the adversary's; the second has a sidecar, and is on its node's network
	canary      *sandboxv1.Sandbox
	closers     []func() error
	given       given
	claimed     atomic.Int64
	results     results
	attempts    int // of rows, for names that are used once
}

func newWorld(dir, logDir string, chosen []row) *world {
	return &world{dir: dir, logDir: logDir, chosen: chosen, tokens: map[string]string{}, given: given{pods: map[string]string{}}}
}

// up builds and starts everything.
func (w *world) up(ctx context.Context) (err error) {
	bin := filepath.Join(w.dir, "bin")
	build := func(ctx context.Context) error { return stack.Build(ctx, bin, false) }
	if w.set, err = stack.Prepare(ctx, build, plane.Options{}, honestClusters...); err != nil {
		return err
	}
	keys, token, err := w.writeKeys()
	if err != nil {
		return err
	}
	encryption, err := w.newEncryptionKey(ctx, bin)
	if err != nil {
		return err
	}
	w.Stack, err = stack.Start(ctx, w.set, stack.Options{
		BinDir: bin, LogDir: w.logDir, Hubs: *hubsFlag, TokenFile: token, HubArgs: append(limits(), "--api-keys-file="+keys,
			"--encryption-key-file="+encryption),
		Via: func(c stack.Connection) (string, error) {
			if c.To == stack.Link {
				w.link = c.Address
			}
			return c.Address, nil
		},
		Env: func(string) []string { return []string{fmt.Sprintf("GOMEMLIMIT=%dMiB", *rssFlag*3/4)} },
	})
	if err != nil {
		return fmt.Errorf("starting hub and workers: %w", err)
	}
	for _, p := range w.programs() {
		if err := p.LimitMemory(hardLimit); err != nil {
			return err
		}
	}
	if w.admin, err = w.HubClient(); err != nil {
		return err
	}
	if err := w.applyEnvs(ctx); err != nil {
		return err
	}
	return w.settleIn(ctx)
}

// limits are the hub's flags: a second where operators have ten, and thousands where they have ten thousands.
func limits() []string {
	flags := []string{"--claim-key-retention=20s"}
	if *fullFlag {
		return flags
	}
	return append(flags, "--header-timeout=1s", "--body-timeout=2s", "--team-max-claim-keys=150", "--max-calls-per-caller=2000",
		"--cluster-max-envs=1000", "--cluster-max-members=2000", "--cluster-max-keys=2000", "--cluster-max-bytes=4194304")
}

// writeKeys writes the hub's keys file, and a file with the administrator's token.
func (w *world) writeKeys() (keys, admin string, err error) {
	var file strings.Builder
	file.WriteString("keys:\n")
	all := map[string]string{
		"admin":         "allTeams: true, allNamespaces: true, scopes: [admin]",
		"mallory":       "team: mallory, namespaces: [default], scopes: [claim]",
		"mallory-reads": "team: mallory, namespaces: [default], scopes: [read]",
		"mallory-admin": "team: mallory, namespaces: [default], scopes: [admin]",
		"hoarder":       "team: hoarder, namespaces: [default], scopes: [claim]", // uses up its quota of keys, which other rows need
	}
	for _, team := range teams {
		all[team] = "team: " + team + ", namespaces: [default], scopes: [claim]"
	}
	for name, bounds := range all {
		w.tokens[name] = "atoll_" + rand.Text()
		sum := sha256.Sum256([]byte(w.tokens[name]))
		fmt.Fprintf(&file, "- {name: %s, sha256: %s, %s}\n", name, hex.EncodeToString(sum[:]), bounds)
	}
	keys, admin = filepath.Join(w.dir, "keys.yaml"), filepath.Join(w.dir, "admin.token")
	return keys, admin, errors.Join(os.WriteFile(keys, []byte(file.String()), 0o600), os.WriteFile(admin, []byte(w.tokens["admin"]), 0o600))
}

func (w *world) applyEnvs(ctx context.Context) error {
	text, err := os.ReadFile("testdata/envs.yaml")
	if err != nil {
		return fmt.Errorf("reading the Envs: %w", err)
	}
	for _, id := range honestClusters {
		// The policy on Pod fields lets only the worker write this one.
		if out, err := w.Cluster(id).Kubectl(ctx, "apply", "-f", "testdata/node.yaml",
			"--as=system:serviceaccount:"+stack.Namespace+":atoll-worker", "--as-group=system:masters"); err != nil {
			return fmt.Errorf("applying a template with hostNetwork in %s: %w\n%s", id, err, out)
		}
		manifest := strings.NewReplacer("CLUSTER", id, "HONEST", strconv.Itoa(honestPods())).Replace(string(text))
		if out, err := w.Cluster(id).KubectlInput(ctx, strings.NewReader(manifest), "apply", "-f", "-"); err != nil {
			return fmt.Errorf("applying the Envs in %s: %w\n%s", id, err, out)
		}
	}
	return w.warm(ctx)
}

// warm waits until the honest Env has its idle Pods; because their creation would slow claims. The canary has one of them.
func (w *world) warm(ctx context.Context) error {
	return wait.Until(ctx, patience, "the Env to be warm", func(ctx context.Context) error {
		ready, err := w.admin.ReadyIdle(ctx, namespace, honestEnv)
		if err != nil {
			return err
		}
		for _, id := range honestClusters {
			if ready[id] < honestPods()-1 {
				return fmt.Errorf("idle are %v", ready)
			}
		}
		return nil
	})
}

// settleIn creates the callers, the canaries and the adversary's sandbox.
func (w *world) settleIn(ctx context.Context) error {
	for _, team := range teams {
		conn, err := grpc.NewClient("passthrough:///"+w.HubEndpoint().Address, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithPerRPCCredentials(token(w.tokens[team])))
		if err != nil {
			return fmt.Errorf("connecting: %w", err)
		}
		w.closers = append(w.closers, conn.Close)
		w.callers = append(w.callers, &caller{team: team, sandboxes: sandboxv1.NewSandboxesClient(conn), claims: sandboxv1.NewClaimsClient(conn)})
	}
	var err error
	if w.canary, err = w.callers[0].sandboxes.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{
		Namespace: namespace, Env: honestEnv, ClaimKey: canaryKey, Clusters: []string{"west"}, RequireClusters: true,
		Labels: map[string]string{"kind": "canary"}, MaxLifetime: durationpb.New(10 * time.Hour),
	}); err != nil {
		return fmt.Errorf("claiming the canary: %w", err)
	}
	// A team's fair share is what its limits say.
	if _, err := w.admin.PutAccess(ctx, &sandboxv1.AccessPolicy{Limits: []*sandboxv1.TeamLimits{
		{Team: "mallory", Limits: &sandboxv1.KeyLimits{ClaimsPerSecond: attackerRate}},
	}}); err != nil {
		return fmt.Errorf("limiting the adversary's team: %w", err)
	}
	for env, of := range map[string]**sandboxv1.Sandbox{spareEnv: &w.own, nodeEnv: &w.node} {
		s, err := w.admin.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{
			Namespace: namespace, Env: env, Team: "mallory", Clusters: []string{"east"}, RequireClusters: true,
			FirstActivityTimeout: durationpb.New(0), MaxLifetime: durationpb.New(10 * time.Hour),
		})
		if err != nil {
			return fmt.Errorf("claiming the adversary's sandbox of Env %s: %w", env, err)
		}
		*of = s
	}
	return nil
}

// token is an API key as gRPC's credentials.
type token string

func (t token) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(t)}, nil
}

func (token) RequireTransportSecurity() bool { return false }

// programs are hub and workers, by name.
func (w *world) programs() map[string]stack.Measured {
	out := map[string]stack.Measured{}
	if len(w.Hubs()) == 0 {
		out["hub"] = w.Hub.(stack.Measured)
	}
	for i, hub := range w.Hubs() {
		name := "hub" // as their metrics are named
		if i > 0 {
			name = fmt.Sprintf("hub-%d", i)
		}
		out[name] = hub.(stack.Measured)
	}
	for _, id := range honestClusters {
		out[id] = w.Worker(id).(stack.Measured)
	}
	return out
}

// ground is what the attacker of a row is given.
func (w *world) ground(ctx context.Context, r row, long time.Duration) (g *ground, err error) {
	w.attempts++
	g = &ground{
		Row: r.name, Full: *fullFlag, Seconds: long.Seconds(), Nice: *niceFlag,
		Source: fmt.Sprintf("127.0.%d.%d", 70+w.attempts/250, 1+w.attempts%250),
		API:    w.HubEndpoint().Address, Link: w.link, WorkerAPI: w.WorkerEndpoint("east").Address,
		Tokens: map[string]string{}, Sandbox: w.own.GetId(), Node: w.node.GetId(), Canary: w.canary.GetId(),
	}
	if len(w.Hubs()) > 0 {
		g.Gossip = w.Gossip()
		if g.Peers, err = w.peers(ctx); err != nil {
			return nil, err
		}
	}
	metrics, err := url.Parse(w.MetricsURL("hub"))
	if err != nil {
		return nil, err
	}
	g.Metrics = metrics.Host
	switch r.role {
	case tenant, sandbox:
		for _, name := range []string{"mallory", "mallory-reads", "mallory-admin", "hoarder"} {
			g.Tokens[name] = w.tokens[name]
		}
	case cluster:
		g.Cluster = fmt.Sprintf("evil-%d", w.attempts)
		if g.Files, err = w.Issue(g.Cluster); err != nil {
			return nil, err
		}
		g.Stolen = w.Certificate("east")
		g.Tokens["mallory"] = w.tokens["mallory"]
	case editor:
		g.Kubeconfig, err = w.set.Plane("east").ServiceAccountKubeconfig(ctx, "mallory", "mallory")
	}
	return g, err
}

// down ends everything.
func (w *world) down(ctx context.Context) error {
	var errs []error
	for _, c := range w.closers {
		errs = append(errs, c())
	}
	if w.Stack != nil {
		errs = append(errs, w.Close())
	}
	return errors.Join(append(errs, w.set.Down(ctx))...)
}
