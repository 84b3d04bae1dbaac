// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/wallclock"
)

var caView = view[*sandboxv1.Ca]{
	name: (*sandboxv1.Ca).GetHash,
	columns: []column[*sandboxv1.Ca]{
		{header: "CA", value: (*sandboxv1.Ca).GetHash},
		{header: "SIGNS", value: func(c *sandboxv1.Ca) string { return fmt.Sprint(c.GetSigns()) }},
		{header: "CREATED", value: func(c *sandboxv1.Ca) string { return c.GetCreated().AsTime().Format(time.DateOnly) }},
		{header: "EXPIRES", value: func(c *sandboxv1.Ca) string { return c.GetExpires().AsTime().Format(time.DateOnly) }},
		{header: "GIVEN", value: func(c *sandboxv1.Ca) string { return fmt.Sprint(c.GetGiven()) }},
	},
}

func (a *app) printPki(cmd *cobra.Command, s *sandboxv1.PkiStatus) error {
	if err := caView.list(cmd.OutOrStdout(), a.output, s.GetCas(), s); err != nil || !tabular(a.output) {
		return err
	}
	w := cmd.OutOrStdout()
	if !s.GetManaged() {
		fmt.Fprintln(w, "The hub has no CA: its certificate comes from files.")
		return nil
	}
	fmt.Fprintln(w, stepText(s))
	if u := s.GetUnmanaged(); len(u) > 0 {
		fmt.Fprintf(w, "Certificates from files, which the hub does not renew: %s\n", strings.Join(u, ", "))
	}
	for _, i := range s.GetInvitations() {
		fmt.Fprintf(w, "Invitation %s of cluster %s, until %s\n", i.GetId(), i.GetClusterId(), i.GetExpires().AsTime().Format(time.RFC3339))
	}
	return nil
}

// stepText describes the step of a rotation, and which clusters are behind.
func stepText(s *sandboxv1.PkiStatus) string {
	text := map[sandboxv1.RotationStep]string{
		sandboxv1.RotationStep_STABLE:       "no rotation is under way",
		sandboxv1.RotationStep_DISTRIBUTING: "step 1 of 3, distributing: clusters get the new CA to trust",
		sandboxv1.RotationStep_RENEWING:     "step 2 of 3, renewing: clusters get certificates of the new CA",
		sandboxv1.RotationStep_DROPPING:     "step 3 of 3, dropping: clusters stop to trust the old CA",
	}[s.GetStep()]
	if w := s.GetWaitingFor(); len(w) > 0 {
		text += "; behind: " + strings.Join(w, ", ")
	}
	return text
}

func pkiStatusCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "status",
		Short:   "Show the hub's CA, the step of a rotation, and which clusters are behind",
		Example: "  atollctl pki status",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.call(cmd, func(ctx context.Context, c clients) error {
				s, err := c.pki.GetPki(ctx, &sandboxv1.GetPkiRequest{})
				if err != nil {
					return err
				}
				return a.printPki(cmd, s)
			})
		},
	}
}

// rotationPause is the interval at which a rotation is polled.
const rotationPause = time.Second

func pkiRotateCommand(a *app) *cobra.Command {
	var skip string
	var wait bool
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Replace the hub's CA without an outage",
		Long: `Replace the hub's CA: clusters get the new CA to trust, then certificates of it, then stop to trust the old one. Each step waits
for the clusters that are attached, and goes on by itself. A cluster that was away for all of it comes back by an invitation.

--skip-waiting STEP lets a step go on without the clusters that it waits for. STEP is the one that atollctl pki status shows: distributing,
renewing or dropping. If the rotation has gone on by then, nothing is skipped.`,
		Example: "  atollctl pki rotate --wait\n  atollctl pki rotate --skip-waiting distributing",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			request := &sandboxv1.RotateCaRequest{SkipWaiting: skip != ""}
			if skip != "" {
				step, ok := sandboxv1.RotationStep_value[strings.ToUpper(skip)]
				if !ok || step < int32(sandboxv1.RotationStep_DISTRIBUTING) {
					return invalidFlag("skip-waiting", skip, "distributing, renewing or dropping")
				}
				request.Step = sandboxv1.RotationStep(step)
			}
			return a.connect(cmd.Context(), func(c clients) error {
				ctx, cancel := context.WithTimeout(cmd.Context(), a.limit())
				s, err := c.pki.RotateCa(ctx, request)
				cancel()
				if err == nil && wait {
					s, err = followRotation(cmd.Context(), cmd.ErrOrStderr(), c, s)
				}
				if err != nil {
					return err
				}
				return a.printPki(cmd, s)
			})
		},
	}
	cmd.Flags().StringVar(&skip, "skip-waiting", "",
		"the step (distributing, renewing or dropping) that goes on without the clusters that it waits for; they come back by an invitation")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the rotation is over, and tell its steps")
	return cmd
}

// followRotation prints the steps of a rotation until it is complete.
func followRotation(ctx context.Context, w io.Writer, c clients, s *sandboxv1.PkiStatus) (*sandboxv1.PkiStatus, error) {
	told := ""
	for {
		if text := stepText(s); text != told {
			fmt.Fprintln(w, text)
			told = text
		}
		if s.GetStep() == sandboxv1.RotationStep_STABLE {
			return s, nil
		}
		if err := wallclock.Sleep(ctx, clock.RealClock{}, rotationPause); err != nil {
			return nil, err
		}
		short, cancel := context.WithTimeout(ctx, shortCall)
		next, err := c.pki.GetPki(short, &sandboxv1.GetPkiRequest{})
		cancel()
		if err != nil {
			return nil, err
		}
		s = next
	}
}
