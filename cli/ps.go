// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/client"
	"navix.sh/atoll/pkg/clip"
)

// client returns a client of the server's REST API, for a command that ends with ctx. A response must begin within the given time; 0: no
// limit.
func (a *app) client(ctx context.Context, begins time.Duration) (*client.Client, error) {
	p, err := a.place(ctx)
	if err != nil {
		return nil, err
	}
	p.transport.ResponseHeaderTimeout = begins
	// What is done after the end of the command, such as a release, also needs a token.
	token := func() (string, error) { return a.bearer(context.WithoutCancel(ctx)) }
	return client.New(client.Options{Server: p.base.String(), TokenSource: token, HTTP: p.http})
}

func psCommand(a *app) *cobra.Command {
	var signal string
	var pid uint32
	cmd := &cobra.Command{
		Use:   "ps ID",
		Short: "List the processes of a sandbox",
		Long: `List the processes of a sandbox that its daemon has started: commands of atollctl run, of the API, and of E2B clients. What exec
has started is not among them. With --signal, send a signal to one of them and its group instead.

The Env's template needs atoll-sandboxd; without it the exit code is 8.`,
		Example: `  atollctl ps 01j9zq3p3k5m8x7c2v4b6n8d0f-east
  atollctl ps 01j9zq3p3k5m8x7c2v4b6n8d0f-east --signal SIGTERM --pid 12`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: firstOnly(a.completeSandboxes),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client(cmd.Context(), a.limit())
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), a.limit())
			defer cancel()
			if signal != "" {
				return a.explainGone(ctx, args[0], c.Of(args[0]).Signal(ctx, pid, signal))
			}
			list, err := c.Of(args[0]).Processes(ctx)
			if err != nil {
				return a.explainGone(ctx, args[0], err)
			}
			return printProcesses(cmd.OutOrStdout(), a.output, list)
		},
	}
	cmd.Flags().StringVar(&signal, "signal", "", "SIGTERM or SIGKILL")
	cmd.Flags().Uint32Var(&pid, "pid", 0, "the process that gets the signal")
	cmd.MarkFlagsRequiredTogether("signal", "pid")
	return cmd
}

func printProcesses(w io.Writer, output string, list []sandboxv1.Process) error {
	switch output {
	case "table", "wide":
		tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
		fmt.Fprintln(tw, "PID\tCOMMAND")
		for _, p := range list {
			fmt.Fprintf(tw, "%d\t%s\n", p.PID, clip.Line(strings.Join(p.Command, " ")))
		}
		return tw.Flush()
	case "name":
		for _, p := range list {
			fmt.Fprintln(w, p.PID)
		}
		return nil
	}
	return encodePlain(w, output, sandboxv1.ProcessList{Processes: list})
}
