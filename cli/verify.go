// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"navix.sh/atoll/pkg/verify"
)

func verifyCommand(a *app) *cobra.Command {
	where := places{needsClusters: true}
	var patience time.Duration
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check a running federation against its invariants, from outside",
		Long: `Check a running federation against its invariants, from outside.

Reads what the API servers of the named clusters hold and what the hub says, and compares: no sandbox on two Pods (I1), no
claim key on two (I2), segments written by their owner alone (I3) and equal everywhere (I4), nothing lost (I5), no running
sandbox marked for deletion (I6), no cluster held up by another's trouble (I7), every cluster serving by itself (I8),
programs no larger than what they serve (I10), no time from a wrong clock (I11), names bound to clusters (I12), idle Pods
clean of tenants (I13). It changes nothing. It needs rights to list Pods, SandboxEnvs and SandboxPools and to read the
worker's namespace, and an API key that is not bound to a team or to namespaces: what a key may not see would seem lost.

Views follow changes, so what may pass by itself is looked at again, for as long as --for says, and is wrong if it stands.
What must never be is wrong if a single look saw it. The hub is the one of --server.

Exit code: 0 nothing is wrong, 1 something is, 2 nothing was found and not everything could be looked at.`,
		Example: `  # Two clusters, whose contexts are called otherwise than their ids, and the hub:
  atollctl verify --server hub.example.org:8080 --context east=kind-hub --context west=kind-worker-a

  # A kubeconfig file for each, and metrics as well, so that sizes can be judged:
  atollctl verify --kubeconfig east=/etc/east.conf --kubeconfig west=/etc/west.conf --metrics hub=http://localhost:9090/metrics

  # The hub is gone; do the clusters still serve, and are their segments true?
  atollctl verify --no-hub --context east --context west

  # In a pipeline: wait up to two minutes after a change, and keep what is wrong.
  atollctl verify --for 2m --context east --context west -o json > findings.json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := where.with(cmd.Context(), a, func(f *verify.Federation, _ []site) error {
				result := f.Settle(cmd.Context(), patience)
				if err := printResult(cmd.OutOrStdout(), a.output, result); err != nil {
					return err
				}
				switch {
				case len(result.Findings) > 0:
					return exitFound
				case len(result.Blind) > 0:
					return exitBlind
				}
				return nil
			})
			return blindUnless(cmd, err)
		},
	}
	where.bind(cmd.Flags())
	cmd.Flags().DurationVar(&patience, "for", 30*time.Second, "how long what may pass by itself is given; 0: two looks")
	return cmd
}

// blindUnless converts an error that kept a command from reading a place to its exit code.
func blindUnless(cmd *cobra.Command, err error) error {
	var code exitCode
	if err == nil || errors.As(err, &code) {
		return err
	}
	reportError(cmd.ErrOrStderr(), err)
	return exitBlind
}

func printResult(w io.Writer, output string, r verify.Result) error {
	if !tabular(output) {
		return encodePlain(w, output, r)
	}
	for _, f := range r.Findings {
		fmt.Fprintf(w, "%s  %s, %s\n    %s\n    expected %s\n", f.Invariant, f.Cluster, f.Object, f.Wrong, f.Expected)
	}
	for _, b := range r.Blind {
		fmt.Fprintln(w, "could not look at", b)
	}
	for _, n := range r.Notes {
		fmt.Fprintln(w, "note:", n)
	}
	verdict := "nothing is wrong"
	switch {
	case len(r.Findings) == 1:
		verdict = "1 thing is wrong"
	case len(r.Findings) > 1:
		verdict = fmt.Sprintf("%d things are wrong", len(r.Findings))
	case len(r.Blind) > 0:
		verdict = "nothing is wrong in what could be looked at"
	}
	_, err := fmt.Fprintf(w, "%s (%d looks)\n", verdict, r.Looks)
	return err
}
