// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/client"
	"navix.sh/atoll/pkg/problem"
)

const (
	// leaving bounds the cleanup after the user has left.
	leaving = 30 * time.Second
	// abandoned is the idle timeout after which the sandbox of a killed atollctl ends. A running atollctl records activity at the interval
	// alive, because a command may be silent for a long time.
	abandoned = 10 * time.Minute
	alive     = 2 * time.Minute
)

func runCommand(a *app) *cobra.Command {
	f := &claimFlags{}
	var env string
	job := &oneJob{app: a}
	cmd := &cobra.Command{
		Use:   "run --env [NAMESPACE/]NAME [flags] -- COMMAND [ARG...]",
		Short: "Create a sandbox, run a command in it, and release it",
		Long: `Create a sandbox, run a command in it, and release it, also after Ctrl-C; ten minutes after atollctl was killed it
ends by itself. What the command prints comes out here as it does, and atollctl exits with the command's exit code. Where there
was no sandbox the exit code is that of create; 255 means that how the command ended is not known, 130 that Ctrl-C ended it.

The sandbox's daemon runs the command (atoll-sandboxd in the Env's template), with the environment of the sandbox. Without a daemon, and
with -i or -t, it is run as by exec.`,
		Example: `  atollctl run --env python -- python3 -c 'print(1)'
  atollctl run --env default/python -it -- sh`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("the command is missing: run --env NAME -- COMMAND [ARG...]")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if env == "" {
				return usagef("--env is missing; `atollctl envs` lists them")
			}
			request, err := f.message(env)
			if err != nil {
				return err
			}
			random := make([]byte, 16)
			_, _ = rand.Read(random) // never fails
			// A claim with a key can be cancelled if its outcome is unknown.
			request.ClaimKey = "run-" + hex.EncodeToString(random)
			request.IdleTimeout = durationpb.New(abandoned)
			job.in, job.out, job.errOut, job.command = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr(), args
			return job.run(cmd, request)
		},
	}
	f.bind(cmd)
	flags := cmd.Flags()
	flags.SetInterspersed(false) // arguments after the first belong to the command
	flags.StringVar(&env, "env", "", "the Env, as NAMESPACE/NAME, or NAME with -n")
	flags.BoolVarP(&job.stdin, "stdin", "i", false, "let the command read what atollctl reads")
	flags.BoolVarP(&job.tty, "tty", "t", false, "give the command a terminal")
	flags.DurationVar(&f.startupTimeout, "startup-timeout", 0, "for queueing and starting; default the pool's, else 2m")
	flags.Var(&f.lifetime, "max-lifetime", "end the sandbox so long after its claim; default never")
	_ = cmd.RegisterFlagCompletionFunc("env", a.completeEnvs)
	_ = cmd.RegisterFlagCompletionFunc("clusters", a.completeClusters)
	return cmd
}

// oneJob is a command that runs in its own sandbox.
type oneJob struct {
	app         *app
	command     []string
	in          io.Reader
	out, errOut io.Writer
	stdin, tty  bool
}

func (j *oneJob) run(cmd *cobra.Command, request *sandboxv1.CreateSandboxRequest) error {
	return j.app.connect(cmd.Context(), func(c clients) error {
		defer j.cancel(cmd.Context(), c, request)
		sandbox, err := j.app.create(cmd, c, request)
		if err == nil {
			err = usable(sandbox)
		}
		if err != nil {
			if cmd.Context().Err() != nil {
				return exitCode(exitInterrupted)
			}
			return err
		}
		using, used := context.WithCancel(cmd.Context())
		defer used()
		go keepAlive(using, c, sandbox.GetId())
		code, err := j.inside(cmd.Context(), sandbox.GetId())
		if err != nil {
			reportError(j.errOut, j.app.explainGone(cmd.Context(), sandbox.GetId(), err))
		}
		if code != 0 {
			return exitCode(code)
		}
		return nil
	})
}

// keepAlive records activity until ctx ends.
func keepAlive(ctx context.Context, c clients, id string) {
	ticker := time.NewTicker(alive)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			_, _ = c.sandboxes.TouchSandbox(ctx, &sandboxv1.TouchSandboxRequest{Id: id}) // if it fails, the next one follows soon
		case <-ctx.Done():
			return
		}
	}
}

// cancel cancels the claim, which releases its sandbox if it has one.
func (j *oneJob) cancel(ctx context.Context, c clients, request *sandboxv1.CreateSandboxRequest) {
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaving)
	defer cancel()
	_, err := c.claims.CancelClaim(late, &sandboxv1.CancelClaimRequest{
		ClaimKey: request.GetClaimKey(), Namespace: request.GetNamespace(), Team: request.GetTeam(),
	})
	if err != nil && problem.FromError(err).Reason != problem.NotFound {
		reportError(j.errOut, fmt.Errorf("releasing the sandbox: %w", err))
	}
}

// inside runs the command, and returns its exit code.
func (j *oneJob) inside(ctx context.Context, id string) (code int, err error) {
	if !j.stdin && !j.tty {
		at, err := j.app.client(ctx, j.app.limit())
		if err != nil {
			return exitNotRun, err
		}
		result, err := at.Of(id).RunCommand(ctx, client.Command{Args: j.command, Stdout: j.out, Stderr: j.errOut})
		switch {
		case ctx.Err() != nil:
			return exitInterrupted, nil
		case err == nil:
			return exitOfResult(result), nil
		case !withoutDaemon(err):
			return exitNotRun, err
		}
	}
	e := &execution{in: j.in, out: j.out, errOut: j.errOut, stdin: j.stdin, tty: j.tty}
	return e.run(ctx, j.app, id, url.Values{
		"command": j.command, "stdin": {strconv.FormatBool(j.stdin)}, "tty": {strconv.FormatBool(j.tty)},
	})
}

// withoutDaemon reports whether an error means that only exec can run the command: the sandbox has no daemon, or its server does not use
// one.
func withoutDaemon(err error) bool {
	reason := problem.FromError(err).Reason
	return reason == problem.Misconfigured || reason == problem.Unimplemented
}

// exitOfResult returns the exit code of a command. A command that a signal ended has no code of its own.
func exitOfResult(r *client.Result) int {
	if r.ExitCode < 0 {
		return exitNotRun
	}
	return r.ExitCode
}
