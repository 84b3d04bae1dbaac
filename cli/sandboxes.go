// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

var sandboxView = view[*sandboxv1.Sandbox]{
	name: (*sandboxv1.Sandbox).GetId,
	columns: []column[*sandboxv1.Sandbox]{
		{header: "SANDBOX", value: (*sandboxv1.Sandbox).GetId},
		{header: "PHASE", value: phaseOf},
		{header: "CLUSTER", value: (*sandboxv1.Sandbox).GetClusterId},
		{header: "ENV", value: func(s *sandboxv1.Sandbox) string { return s.GetNamespace() + "/" + s.GetEnv() }},
		{header: "POD-IP", value: (*sandboxv1.Sandbox).GetPodIp},
		{header: "AGE", value: func(s *sandboxv1.Sandbox) string { return since(time.Now(), s.GetClaimedAt()) }},
		{header: "ENDED", value: ending},
		{header: "POOL", wide: true, value: (*sandboxv1.Sandbox).GetPool},
		{header: "POD", wide: true, value: (*sandboxv1.Sandbox).GetPod},
		{header: "IMAGE", wide: true, value: (*sandboxv1.Sandbox).GetImage},
		{header: "TEAM", wide: true, value: (*sandboxv1.Sandbox).GetTeam},
		{header: "USER", wide: true, value: (*sandboxv1.Sandbox).GetUser},
		{header: "CLAIM-KEY", wide: true, value: (*sandboxv1.Sandbox).GetClaimKey},
		{header: "ACTIVE", wide: true, value: func(s *sandboxv1.Sandbox) string { return since(time.Now(), s.GetLastActiveAt()) }},
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
	var phase string
	var over ended
	cmd := &cobra.Command{
		Use:     "sandboxes [ID]",
		Aliases: []string{"sandbox", "sb"},
		Short:   "Show live sandboxes, or those that have ended, or one of either",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd, func(ctx context.Context, c clients) error {
				if len(args) == 1 {
					sandbox, err := c.sandboxes.GetSandbox(ctx, &sandboxv1.GetSandboxRequest{Id: args[0]})
					if err != nil {
						return err
					}
					return showSandbox(cmd.OutOrStdout(), a.output, sandbox)
				}
				if err := errors.Join(parsePhase(phase, filter), over.apply(filter, time.Now())); err != nil {
					return err
				}
				whole, err := allSandboxes(ctx, c, filter)
				if err != nil {
					return err
				}
				if missing := whole.GetUnreachableClusters(); len(missing) > 0 {
					fmt.Fprintf(cmd.ErrOrStderr(), "not in this list, unreachable: %s\n", strings.Join(missing, ", "))
				}
				return sandboxView.list(cmd.OutOrStdout(), a.output, whole.GetSandboxes(), whole)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&filter.Namespace, "namespace", "n", "", "only this namespace")
	flags.StringVar(&filter.Env, "env", "", "only this Env")
	flags.StringVar(&filter.ClusterId, "cluster", "", "only this cluster")
	flags.StringVar(&filter.Team, "team", "", "only this team's")
	flags.StringVar(&filter.User, "user", "", "only this user's")
	flags.StringVar(&filter.Pool, "pool", "", "only this pool's")
	flags.StringVar(&phase, "phase", "", "only this phase: starting, running, stopping or ended")
	over.bind(flags, filter)
	return cmd
}

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
			missing[cluster] = true // missing from any page is missing from the list
		}
		whole.UnreachableClusters = slices.Sorted(maps.Keys(missing))
		if filter.PageToken = page.GetNextPageToken(); filter.PageToken == "" {
			return whole, nil
		}
	}
}

func parsePhase(phase string, filter *sandboxv1.ListSandboxesRequest) error {
	if phase == "" {
		return nil
	}
	value, ok := sandboxv1.Phase_value[strings.ToUpper(phase)]
	if !ok {
		return fmt.Errorf("--phase %q is not valid, want starting, running, stopping or ended", phase)
	}
	filter.Phase = sandboxv1.Phase(value)
	return nil
}

func claimCommand(a *app) *cobra.Command {
	var namespace string
	var cancel bool
	cmd := &cobra.Command{
		Use:   "claim KEY",
		Short: "Show what became of a claim key, or cancel it",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd, func(ctx context.Context, c clients) error {
				var claim *sandboxv1.Claim
				var err error
				if cancel {
					claim, err = c.claims.CancelClaim(ctx, &sandboxv1.CancelClaimRequest{ClaimKey: args[0], Namespace: namespace})
				} else {
					claim, err = c.claims.GetClaim(ctx, &sandboxv1.GetClaimRequest{ClaimKey: args[0], Namespace: namespace})
				}
				if err != nil {
					return err
				}
				return claimView.one(cmd.OutOrStdout(), a.output, claim)
			})
		},
	}
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "default", "the claim's namespace")
	cmd.Flags().BoolVar(&cancel, "cancel", false, "end the claim; its sandbox is released")
	return cmd
}

var claimView = view[*sandboxv1.Claim]{
	name: (*sandboxv1.Claim).GetClaimKey,
	columns: []column[*sandboxv1.Claim]{
		{header: "CLAIM-KEY", value: (*sandboxv1.Claim).GetClaimKey},
		{header: "NAMESPACE", value: (*sandboxv1.Claim).GetNamespace},
		{header: "CLUSTER", value: (*sandboxv1.Claim).GetClusterId},
		{header: "ATTEMPT", value: func(c *sandboxv1.Claim) string { return number(c.GetAttempt()) }},
		{header: "SANDBOX", value: func(c *sandboxv1.Claim) string { return c.GetSandbox().GetId() }},
		{header: "PHASE", value: func(c *sandboxv1.Claim) string {
			if c.GetSandbox() == nil {
				return ""
			}
			return c.GetSandbox().GetPhase().String()
		}},
		{header: "ENDED", value: func(c *sandboxv1.Claim) string { return ending(c.GetSandbox()) }},
	},
}
