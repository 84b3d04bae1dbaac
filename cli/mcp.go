// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"navix.sh/atoll/pkg/mcpserver"
	"navix.sh/atoll/pkg/version"
)

func mcpCommand(a *app) *cobra.Command {
	o := mcpserver.Options{Version: version.String()}
	var of envRef
	cmd := &cobra.Command{
		Use:   "mcp [--env [NAMESPACE/]NAME]",
		Short: "Offer sandboxes to an agent by the Model Context Protocol, on standard input and output",
		Long: `Offer sandboxes to an agent by the Model Context Protocol, on standard input and output. Agents start it themselves: name it as a
server of type stdio in their settings.

The tools are create, run, read, write, list, port and release. An agent uses the sandboxes of its own session alone, and they are released
when the session ends. The Env's template needs atoll-sandboxd.`,
		Example: `  atollctl mcp --env default/python --token-file ~/.config/atoll/key`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.MaxSandboxes < 1 || o.MaxSandboxes > 1000 {
				return usagef("--max-sandboxes: %d is not valid, want 1 to 1000", o.MaxSandboxes)
			}
			if o.Env != "" {
				namespace, name, err := of.resolve(o.Env)
				if err != nil {
					return err
				}
				o.Env = namespace + "/" + name
			}
			var err error
			if o.Client, err = a.client(cmd.Context(), a.timeout); err != nil { // by default a create takes as long as its server waits
				return err
			}
			return mcpserver.New(o).Run(cmd.Context(), &mcp.StdioTransport{})
		},
	}
	flags := cmd.Flags()
	of.bind(flags)
	flags.StringVar(&o.Env, "env", "", "the Env of sandboxes, unless the agent names another: NAME or NAMESPACE/NAME")
	flags.DurationVar(&o.IdleTimeout, "idle-timeout", 30*time.Minute, "end a sandbox after so long without activity; 0: the pool's")
	flags.IntVar(&o.MaxSandboxes, "max-sandboxes", 8, "how many sandboxes a session has at a time")
	_ = cmd.RegisterFlagCompletionFunc("env", a.completeEnvs)
	return cmd
}
