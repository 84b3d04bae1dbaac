// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/clip"
	"navix.sh/atoll/pkg/listing"
)

var sandboxView = view[*sandboxv1.Sandbox]{
	name:  (*sandboxv1.Sandbox).GetId,
	state: func(s *sandboxv1.Sandbox) string { return s.GetPhase().String() },
	final: usable,
	columns: []column[*sandboxv1.Sandbox]{
		{header: "SANDBOX", value: (*sandboxv1.Sandbox).GetId},
		{header: "PHASE", value: phaseOf},
		{header: "CLUSTER", value: (*sandboxv1.Sandbox).GetClusterId},
		{header: "ENV", value: func(s *sandboxv1.Sandbox) string { return s.GetNamespace() + "/" + s.GetEnv() }},
		{header: "POD-IP", value: (*sandboxv1.Sandbox).GetPodIp},
		{header: "AGE", age: true, value: func(s *sandboxv1.Sandbox) string { return since(time.Now(), s.GetClaimedAt()) }},
		{header: "ENDED", value: ending},
		{header: "STALE", age: true, value: func(s *sandboxv1.Sandbox) string { return ago(s.GetStaleAge()) }},
		{header: "POOL", wide: true, value: (*sandboxv1.Sandbox).GetPool},
		{header: "POD", wide: true, value: (*sandboxv1.Sandbox).GetPod},
		{header: "IMAGE", wide: true, value: (*sandboxv1.Sandbox).GetImage},
		{header: "RUNTIME-CLASS", wide: true, value: (*sandboxv1.Sandbox).GetRuntimeClassName},
		{header: "TEAM", wide: true, value: (*sandboxv1.Sandbox).GetTeam},
		{header: "USER", wide: true, value: (*sandboxv1.Sandbox).GetUser},
		{header: "CLAIM-KEY", wide: true, value: (*sandboxv1.Sandbox).GetClaimKey},
		{header: "ACTIVE", wide: true, age: true, value: func(s *sandboxv1.Sandbox) string { return since(time.Now(), s.GetLastActiveAt()) }},
		{header: "IDLE-TIMEOUT", wide: true, value: func(s *sandboxv1.Sandbox) string { return ago(s.GetIdleTimeout()) }},
		{header: "MAX-LIFETIME", wide: true, value: func(s *sandboxv1.Sandbox) string { return ago(s.GetMaxLifetime()) }},
	},
}

// phaseOf formats a phase, with a pause: RUNNING (PAUSED), RUNNING (RESUMING, Deferred).
func phaseOf(s *sandboxv1.Sandbox) string {
	p := s.GetPause()
	switch {
	case p == nil:
		return s.GetPhase().String()
	case p.GetReason() == "":
		return fmt.Sprintf("%s (%s)", s.GetPhase(), p.GetState())
	default:
		return fmt.Sprintf("%s (%s, %s)", s.GetPhase(), p.GetState(), p.GetReason())
	}
}

func ending(s *sandboxv1.Sandbox) string {
	if s.GetFailureReason() == "" {
		return s.GetStopReason()
	}
	return s.GetStopReason() + " (" + s.GetFailureReason() + ")"
}

func sandboxesCommand(a *app) *cobra.Command {
	filter := &sandboxv1.ListSandboxesRequest{PageSize: 500}
	var phase, env string
	var of envRef
	var over ended
	var how following
	cmd := &cobra.Command{
		Use:        "sandboxes [ID]",
		SuggestFor: []string{"list", "ls", "ps"},
		Aliases:    []string{"sandbox", "sb"},
		Short:      "Show live sandboxes, or those that have ended, or one of either",
		Example: `  atollctl sandboxes --env default/python --watch
  atollctl sandboxes -l app=web --sort-by 'claimedAt desc'
  atollctl sandboxes --ended --ended-after 2h --stop-reason Failed
  atollctl sandboxes 01j9zq3p3k5m8x7c2v4b6n8d0f-east --wait=running`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: firstOnly(a.completeSandboxes),
		RunE: func(cmd *cobra.Command, args []string) error {
			d := display[*sandboxv1.Sandbox]{app: a, cmd: cmd, view: sandboxView}
			d.print = func(got fetched[*sandboxv1.Sandbox]) error {
				return sandboxView.all(cmd, a.output, "sandboxes", got.items, got.whole)
			}
			d.gone = func(ctx context.Context, c clients, s *sandboxv1.Sandbox) (*sandboxv1.Sandbox, error) {
				return c.sandboxes.GetSandbox(ctx, &sandboxv1.GetSandboxRequest{Id: s.GetId()})
			}
			if len(args) == 1 {
				if err := onlyForLists(cmd, args[0], sandboxFilters...); err != nil {
					return err
				}
				d.fetch = func(ctx context.Context, c clients) (fetched[*sandboxv1.Sandbox], error) {
					sandbox, err := c.sandboxes.GetSandbox(ctx, &sandboxv1.GetSandboxRequest{Id: args[0]})
					return fetched[*sandboxv1.Sandbox]{[]*sandboxv1.Sandbox{sandbox}, sandbox}, err
				}
				if !how.watch {
					d.print = func(got fetched[*sandboxv1.Sandbox]) error {
						return showSandbox(cmd.OutOrStdout(), a.output, got.items[0])
					}
				}
				return d.run(how)
			}
			filter.Phase = sandboxv1.Phase(sandboxv1.Phase_value[strings.ToUpper(phase)])
			var err error
			if filter.Env = env; strings.Contains(env, "/") {
				if filter.Namespace, filter.Env, err = of.resolve(env); err != nil {
					return err
				}
			} else {
				filter.Namespace = of.namespace
			}
			if err := over.apply(filter, time.Now()); err != nil {
				return err
			}
			d.fetch = func(ctx context.Context, c clients) (fetched[*sandboxv1.Sandbox], error) {
				whole, err := allSandboxes(ctx, c, proto.CloneOf(filter))
				if missing := whole.GetUnreachableClusters(); len(missing) > 0 {
					fmt.Fprintf(cmd.ErrOrStderr(), "unreachable: %s; sandboxes there are as last known (STALE: how long ago), or missing\n",
						strings.Join(missing, ", "))
				}
				return fetched[*sandboxv1.Sandbox]{whole.GetSandboxes(), whole}, err
			}
			if !listing.WantsEnded(filter) {
				d.stream = func(ctx context.Context, c clients, l listener[*sandboxv1.Sandbox]) error {
					request, _ := listing.Watch(filter) // the faults are about pages and their order, which a watch does not have
					w := watching{clients: c, request: request, errs: cmd.ErrOrStderr(), listener: l, renew: a.dropToken}
					return w.run(ctx)
				}
			}
			return namingFlags(d.run(how))
		},
	}
	flags := cmd.Flags()
	of.bind(flags)
	bindAllNamespaces(cmd)
	flags.Lookup("namespace").Usage = "only this namespace"
	flags.StringVar(&env, "env", "", "only this Env: NAMESPACE/NAME, or NAME, with -n or in all namespaces")
	flags.StringVar(&filter.ClusterId, "cluster", "", "only this cluster")
	flags.StringVar(&filter.Team, "team", "", "only this team's")
	flags.StringVar(&filter.User, "user", "", "only this user's")
	flags.StringVar(&filter.Pool, "pool", "", "only this pool's")
	flags.StringVarP(&filter.LabelSelector, "selector", "l", "", "only those with such labels, as for kubectl: app=web,tier in (a,b),!old")
	flags.StringArrayVar(&filter.MetadataSelector, "metadata", nil,
		"only those with such metadata: KEY=VALUE, KEY!=VALUE, KEY or !KEY (repeatable; all must hold)")
	flags.StringVar(&filter.OrderBy, "sort-by", "",
		`order: `+strings.Join(listing.Orders(), ", ")+`, with " desc" for the reverse (default id)`)
	bindEnum(cmd, flags, &phase, "phase", "", "only this phase: starting, running, stopping or ended", phases...)
	over.bind(cmd, filter)
	how.bind(cmd, phases...)
	_ = cmd.RegisterFlagCompletionFunc("env", a.completeEnvs)
	_ = cmd.RegisterFlagCompletionFunc("cluster", a.completeClusters)
	return cmd
}

// sandboxFilters are the flags that filter a list of sandboxes.
var sandboxFilters = []string{
	"namespace", "env", "cluster", "team", "user", "pool", "selector", "metadata", "phase", "ended", "ended-after", "ended-before",
	"stop-reason",
}

var phases = []string{"starting", "running", "stopping", "ended"}

func allSandboxes(ctx context.Context, c clients, filter *sandboxv1.ListSandboxesRequest) (*sandboxv1.ListSandboxesResponse, error) {
	whole := &sandboxv1.ListSandboxesResponse{}
	missing := map[string]bool{}
	for {
		page, err := c.sandboxes.ListSandboxes(ctx, filter)
		if err != nil {
			return nil, err
		}
		whole.Sandboxes = append(whole.Sandboxes, page.GetSandboxes()...)
		for _, cluster := range page.GetUnreachableClusters() {
			missing[cluster] = true // missing from any page means missing from the list
		}
		whole.UnreachableClusters = slices.Sorted(maps.Keys(missing))
		if filter.PageToken = page.GetNextPageToken(); filter.PageToken == "" {
			return whole, nil
		}
	}
}

func claimCommand(a *app) *cobra.Command {
	var namespace, team string
	var cancel bool
	var how following
	cmd := &cobra.Command{
		Use:   "claim KEY",
		Short: "Show what became of a claim key, or cancel it",
		Example: `  atollctl claim build-17
  atollctl claim build-17 --wait=running
  atollctl claim build-17 --cancel`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cancel && (how.watch || how.wait != "") {
				return usagef("--cancel goes with neither --watch nor --wait")
			}
			d := display[*sandboxv1.Claim]{app: a, cmd: cmd, view: claimView}
			d.print = func(got fetched[*sandboxv1.Claim]) error {
				return claimView.one(cmd.OutOrStdout(), a.output, got.items[0])
			}
			d.fetch = func(ctx context.Context, c clients) (fetched[*sandboxv1.Claim], error) {
				var claim *sandboxv1.Claim
				var err error
				if cancel {
					claim, err = c.claims.CancelClaim(ctx, &sandboxv1.CancelClaimRequest{ClaimKey: args[0], Namespace: namespace, Team: team})
				}
				if err == nil { // a cancel's response has no state
					claim, err = c.claims.GetClaim(ctx, &sandboxv1.GetClaimRequest{ClaimKey: args[0], Namespace: namespace, Team: team})
				}
				return fetched[*sandboxv1.Claim]{[]*sandboxv1.Claim{claim}, claim}, err
			}
			return d.run(how)
		},
	}
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "default", "the claim's namespace")
	cmd.Flags().StringVar(&team, "team", "", "the claim's team; default yours")
	cmd.Flags().BoolVar(&cancel, "cancel", false, "end the claim; its sandbox is released")
	how.bind(cmd, "waiting", "starting", "running", "ended", "expired")
	return cmd
}

var claimView = view[*sandboxv1.Claim]{
	name:  (*sandboxv1.Claim).GetClaimKey,
	state: func(c *sandboxv1.Claim) string { return c.GetState().String() },
	final: func(c *sandboxv1.Claim) error {
		if c.GetState() == sandboxv1.Claim_ENDED {
			return &endedError{id: c.GetSandbox().GetId(), cause: c.GetMessage(), key: c.GetClaimKey()}
		}
		return nil
	},
	columns: []column[*sandboxv1.Claim]{
		{header: "CLAIM-KEY", value: (*sandboxv1.Claim).GetClaimKey},
		{header: "NAMESPACE", value: (*sandboxv1.Claim).GetNamespace},
		{header: "STATE", value: func(c *sandboxv1.Claim) string {
			if c.GetState() == sandboxv1.Claim_STATE_UNSPECIFIED { // of an older server
				return ""
			}
			return c.GetState().String()
		}},
		{header: "CLUSTER", value: (*sandboxv1.Claim).GetClusterId},
		{header: "POSITION", value: func(c *sandboxv1.Claim) string {
			if c.GetWaiting().GetPosition() == 0 {
				return ""
			}
			return fmt.Sprintf("%d of %d", c.GetWaiting().GetPosition(), c.GetWaiting().GetClaims())
		}},
		{header: "SINCE", age: true, value: func(c *sandboxv1.Claim) string { return since(time.Now(), c.GetSince()) }},
		{header: "SANDBOX", value: func(c *sandboxv1.Claim) string { return c.GetSandbox().GetId() }},
		{header: "MESSAGE", value: func(c *sandboxv1.Claim) string { return clip.Line(c.GetMessage()) }},
		{header: "POOL", wide: true, value: (*sandboxv1.Claim).GetPool},
		{header: "ATTEMPT", wide: true, value: func(c *sandboxv1.Claim) string { return number(c.GetAttempt()) }},
	},
}
