// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"navix.sh/atoll/pkg/doctor"
	"navix.sh/atoll/pkg/verify"
)

func doctorCommand(a *app) *cobra.Command {
	var where places
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Tell what is wrong with a federation, since when, and what to do",
		Long: `Tell what is wrong with a federation, since when, and what to do about it, worst first.

The hub of --server tells of itself (recovery, store, certificates, your API key), of clusters (unreachable, silent,
quarantined, draining) and of Envs (missing members, no member with room). With --context or --kubeconfig clusters
are asked as well: worker, lease, CRDs, rights, admission policies, the Envs' conditions, and Pods that do not come up.
That needs the rights of a cluster administrator. It changes nothing.

Exit code: 0 all is well, 1 something is wrong, 2 nothing wrong was found and not everything could be looked at.`,
		Example: `  # What the hub knows:
  atollctl doctor --server hub.example.org:8080 --ca-file ca.crt --token-file token

  # Look into two clusters as well, whose contexts are called otherwise than their ids:
  atollctl doctor --context east=kind-hub --context west=kind-worker-a

  # The hub does not respond: what do the clusters say?
  atollctl doctor --no-hub --kubeconfig east=/etc/east.conf

  # For a program: all that is critical.
  atollctl doctor -o json | jq '.[] | select(.severity == "critical")'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := where.with(cmd.Context(), a, func(f *verify.Federation, sites []site) error {
				places := make([]doctor.Place, 0, len(sites))
				for _, s := range sites {
					places = append(places, doctor.Place{ID: s.id, Context: s.context, Namespace: where.namespace, Config: s.config})
				}
				seen := doctor.Look(cmd.Context(), f, places, time.Now())
				return report(cmd.OutOrStdout(), a.output, seen)
			})
			return blindUnless(cmd, err)
		},
	}
	where.bind(cmd.Flags())
	return cmd
}

func report(w io.Writer, output string, seen *doctor.Snapshot) error {
	found := doctor.Diagnose(seen)
	if !tabular(output) {
		if found == nil {
			found = []doctor.Diagnosis{}
		}
		if err := encodePlain(w, output, found); err != nil {
			return err
		}
	} else {
		verdict := ""
		if len(found) == 0 {
			verdict = "all is well" + looked(seen) + "\n"
		}
		if _, err := fmt.Fprint(w, doctor.Text(found), verdict); err != nil {
			return err
		}
	}
	switch {
	case slices.ContainsFunc(found, func(d doctor.Diagnosis) bool { return d.Severity != doctor.Info }):
		return exitFound
	case !seen.Whole():
		return exitBlind
	}
	return nil
}

// looked returns what was examined, which qualifies a clean result.
func looked(s *doctor.Snapshot) string {
	hub := "no hub"
	if s.Hub != nil {
		hub = "the hub"
	}
	if s.Hub != nil && len(s.Clusters) == 0 {
		return " as far as the hub knows; --context or --kubeconfig looks into clusters as well"
	}
	return fmt.Sprintf(" (%s and %d clusters were looked at)", hub, len(s.Clusters))
}
