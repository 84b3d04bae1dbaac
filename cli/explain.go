// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/clip"
)

var candidateView = view[*sandboxv1.Candidate]{
	name: func(c *sandboxv1.Candidate) string { return c.GetClusterId() + "/" + c.GetPool() },
	columns: []column[*sandboxv1.Candidate]{
		{header: "RANK", value: func(c *sandboxv1.Candidate) string {
			if c.GetRank() == 0 {
				return ""
			}
			return strconv.Itoa(int(c.GetRank()))
		}},
		{header: "CLUSTER", value: (*sandboxv1.Candidate).GetClusterId},
		{header: "POOL", value: (*sandboxv1.Candidate).GetPool},
		{header: "TIER", value: (*sandboxv1.Candidate).GetTier},
		{header: "REASON", value: (*sandboxv1.Candidate).GetReason},
		{header: "READY", value: func(c *sandboxv1.Candidate) string { return number(c.GetReadyIdle()) }},
		{header: "IN-FLIGHT", value: func(c *sandboxv1.Candidate) string { return number(c.GetInFlight()) }},
		{header: "PRIORITY", value: func(c *sandboxv1.Candidate) string { return number(c.GetPriority()) }},
		{header: "AGE", value: func(c *sandboxv1.Candidate) string { return ago(c.GetAge()) }},
		{header: "OUTCOME", value: (*sandboxv1.Candidate).GetOutcome},
		{header: "MESSAGE", wide: true, value: func(c *sandboxv1.Candidate) string { return clip.Line(c.GetMessage()) }},
	},
}

func explainCommand(a *app) *cobra.Command {
	f := &claimFlags{}
	var sandbox, key string
	cmd := &cobra.Command{
		Use:   "explain [[NAMESPACE/]ENV]",
		Short: "Tell where a claim would go, or why a past one went where it did",
		Example: `  atollctl explain python --clusters west
  atollctl explain --claim-key build-17
  atollctl explain --sandbox 01j9zq3p3k5m8x7c2v4b6n8d0f-east`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completeEnvs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && sandbox == "" && key == "" {
				return usagef("an Env is missing, or --sandbox, or --claim-key; `atollctl envs` lists the Envs")
			}
			return a.call(cmd, func(ctx context.Context, c clients) error {
				env := strings.Join(args, "")
				if env == "" {
					var err error
					if env, err = envOf(ctx, c, sandbox, &sandboxv1.GetClaimRequest{
						ClaimKey: key, Namespace: f.of.namespace, Team: f.request.GetTeam(),
					}); err != nil {
						return err
					}
				}
				request, err := f.message(env)
				if err != nil {
					return err
				}
				decision, err := c.envs.ExplainEnv(ctx, &sandboxv1.ExplainEnvRequest{
					Namespace: request.GetNamespace(), Name: request.GetEnv(), Request: request, SandboxId: sandbox, ClaimKey: key,
				})
				if err != nil {
					return err
				}
				if tabular(a.output) {
					fmt.Fprintln(cmd.OutOrStdout(), headline(decision))
				}
				return candidateView.list(cmd.OutOrStdout(), a.output, decision.GetCandidates(), decision)
			})
		},
	}
	f.bind(cmd)
	cmd.Flags().StringVar(&sandbox, "sandbox", "", "explain the claim that made this sandbox")
	cmd.Flags().StringVar(&key, "claim-key", "", "explain the claim with this key")
	cmd.MarkFlagsMutuallyExclusive("sandbox", "claim-key")
	return cmd
}

// envOf returns the Env of a past claim, which is given by its sandbox or its key.
func envOf(ctx context.Context, c clients, sandbox string, claim *sandboxv1.GetClaimRequest) (string, error) {
	if sandbox != "" {
		s, err := c.sandboxes.GetSandbox(ctx, &sandboxv1.GetSandboxRequest{Id: sandbox})
		return s.GetNamespace() + "/" + s.GetEnv(), err
	}
	found, err := c.claims.GetClaim(ctx, claim)
	if err != nil {
		return "", err
	}
	if found.GetSandbox().GetEnv() == "" {
		return "", usagef("the Env of claim %s is not known now; name it as well: explain [NAMESPACE/]ENV --claim-key …", claim.GetClaimKey())
	}
	return found.GetNamespace() + "/" + found.GetSandbox().GetEnv(), nil
}

func headline(d *sandboxv1.Decision) string {
	target := "nowhere"
	if d.GetClusterId() != "" {
		target = d.GetClusterId() + "/" + d.GetPool()
	}
	line := target + ": " + d.GetReason()
	if d.GetMessage() != "" {
		line += " (" + clip.Line(strings.ReplaceAll(d.GetMessage(), "; explain tells more", "")) + ")"
	}
	return line
}
