// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

func logsCommand(a *app) *cobra.Command {
	var follow, timestamps bool
	var tail int64
	var since time.Duration
	var container, runtime string
	cmd := &cobra.Command{
		Use:   "logs [-f] ID",
		Short: "Print what a sandbox has printed",
		Long: `Print what a sandbox's container has printed, since it runs. With -f, what it prints from now on as well, until the sandbox
ends. What other sandboxes printed in the same Pod before is not shown.

With --runtime, the log file of that runtime instead, which its logDir in the template names. It is read with tail, which the
container's image must have.`,
		Example: `  atollctl logs 01j9zq3p3k5m8x7c2v4b6n8d0f-east
  atollctl logs -f --tail 20 01j9zq3p3k5m8x7c2v4b6n8d0f-east
  atollctl logs --runtime e2b 01j9zq3p3k5m8x7c2v4b6n8d0f-east`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: firstOnly(a.completeSandboxes),
		RunE: func(cmd *cobra.Command, args []string) error {
			query := url.Values{"follow": {strconv.FormatBool(follow)}, "timestamps": {strconv.FormatBool(timestamps)}}
			if runtime != "" {
				query.Set("runtime", runtime)
			}
			if tail >= 0 {
				query.Set("tail", strconv.FormatInt(tail, 10))
			}
			if since > 0 {
				query.Set("since", since.String())
			}
			if container != "" {
				query.Set("container", container)
			}
			p, err := a.place(cmd.Context())
			if err != nil {
				return err
			}
			answer, err := p.get(cmd.Context(), args[0], "logs", query)
			if err != nil {
				return a.explainGone(cmd.Context(), args[0], err)
			}
			defer answer.Body.Close()
			if _, err := io.Copy(cmd.OutOrStdout(), answer.Body); err != nil && cmd.Context().Err() == nil {
				return fmt.Errorf("reading the log: %w", err)
			}
			if why := answer.Trailer.Get("Atoll-Error"); why != "" {
				return errors.New("the log broke off: " + why)
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&follow, "follow", "f", false, "go on with what is printed from now on")
	flags.Int64Var(&tail, "tail", -1, "begin with so many of the last lines; default all")
	flags.DurationVar(&since, "since", 0, "begin with what is not older than this")
	flags.BoolVar(&timestamps, "timestamps", false, "show when each line was printed")
	flags.StringVar(&runtime, "runtime", "", "read the log file of this runtime")
	flags.StringVarP(&container, "container", "c", "", "which container of the sandbox's Pod, if callers reach it; default the sandbox's own")
	return cmd
}
