// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/problem"
)

// claimFlags are the flags of a request, shared by create and explain.
type claimFlags struct {
	request        sandboxv1.CreateSandboxRequest
	of             envRef
	startupTimeout time.Duration
	wait           string

	idle, lifetime, firstActivity timeoutFlag // create's
	hooks                         string      // a file
	variables                     []string
	files                         []string // LOCAL:PATH
	secrets                       []string // ENV=NAME/KEY
}

func (f *claimFlags) bind(cmd *cobra.Command) {
	flags, r := cmd.Flags(), &f.request
	f.of.bind(flags)
	flags.StringVar(&r.Image, "image", "", "image to run; default the pool's")
	flags.StringVar(&r.InstanceType, "instance-type", "", "only pools of this instance type")
	flags.Int32Var(&r.Multiplier, "multiplier", 0, "only pools of this multiplier")
	flags.StringVar(&r.ScalingGroup, "scaling-group", "", "only pools of this scaling group")
	flags.StringSliceVar(&r.Clusters, "clusters", nil, "preferred clusters, best first")
	flags.BoolVar(&r.RequireClusters, "require-clusters", false, "no other clusters than --clusters")
	flags.StringVar(&r.Team, "team", "", "on behalf of this team")
	flags.StringVar(&r.User, "user", "", "on behalf of this user")
	flags.BoolVar(&r.NoQueue, "no-queue", false, "refuse at once when nothing is idle")
}

// message returns the request that the flags describe.
func (f *claimFlags) message(env string) (*sandboxv1.CreateSandboxRequest, error) {
	var err error
	if f.request.Namespace, f.request.Env, err = f.of.resolve(env); err != nil {
		return nil, err
	}
	if f.startupTimeout > 0 {
		f.request.StartupTimeout = durationpb.New(f.startupTimeout)
	}
	f.request.IdleTimeout, f.request.MaxLifetime = f.idle.message(), f.lifetime.message()
	f.request.FirstActivityTimeout = f.firstActivity.message()
	if f.request.PostStartHooks, err = readHooks(f.hooks); err != nil {
		return nil, err
	}
	if f.request.EnvVars, err = variablesOf(f.variables, os.LookupEnv); err != nil {
		return nil, err
	}
	if f.request.Secrets, err = secretsOf(f.secrets); err != nil {
		return nil, err
	}
	if f.request.Files, err = initialFiles(f.files); err != nil {
		return nil, err
	}
	if f.wait != "" {
		value, ok := sandboxv1.CreateSandboxRequest_Wait_value[strings.ToUpper(f.wait)]
		if !ok {
			return nil, invalidFlag("wait", f.wait, "ready, assigned or none")
		}
		f.request.Wait = sandboxv1.CreateSandboxRequest_Wait(value)
	}
	return &f.request, nil
}

// variablesOf parses the variables of flags. lookup returns atollctl's own variables. Errors contain no value, which may be secret.
func variablesOf(given []string, lookup func(string) (string, bool)) (map[string]string, error) {
	if len(given) == 0 {
		return nil, nil
	}
	variables := map[string]string{}
	for _, one := range given {
		name, value, has := strings.Cut(one, "=")
		if !has {
			if value, has = lookup(name); !has {
				return nil, invalidFlag("env-var", name, "NAME=VALUE, or the NAME of a variable that is set here")
			}
		}
		if _, twice := variables[name]; twice || name == "" {
			return nil, invalidFlag("env-var", name, "each NAME once")
		}
		variables[name] = value
	}
	return variables, nil
}

// secretsOf reads references to Secrets.
func secretsOf(given []string) (secrets []*sandboxv1.SandboxSecret, err error) {
	for _, one := range given {
		env, from, _ := strings.Cut(one, "=")
		name, key, _ := strings.Cut(from, "/")
		if env == "" || name == "" || key == "" {
			return nil, invalidFlag("secret", one, "ENV=NAME/KEY: a variable, a Secret of the Env's namespace, and its key")
		}
		secrets = append(secrets, &sandboxv1.SandboxSecret{Env: env, Name: name, Key: key})
	}
	return secrets, nil
}

// maxFile bounds how much of a file is read. The server bounds all files together.
const maxFile = 1 << 20

// initialFiles reads the files that a sandbox begins with.
func initialFiles(given []string) (files []*sandboxv1.SandboxFile, err error) {
	for _, one := range given {
		local, path, ok := strings.Cut(one, ":")
		if !ok || local == "" || path == "" {
			return nil, invalidFlag("file", one, "LOCAL:PATH")
		}
		info, err := os.Stat(local)
		if err != nil {
			return nil, fmt.Errorf("--file: %w", err)
		}
		if !info.Mode().IsRegular() || info.Size() > maxFile {
			return nil, invalidFlag("file", local, "a file of at most 1 MiB; atollctl cp takes others")
		}
		content, err := os.ReadFile(local)
		if err != nil {
			return nil, fmt.Errorf("--file: %w", err)
		}
		files = append(files, &sandboxv1.SandboxFile{Path: path, Content: content, Mode: fmt.Sprintf("%04o", info.Mode().Perm())})
	}
	return files, nil
}

func createCommand(a *app) *cobra.Command {
	f := &claimFlags{}
	var env string
	cmd := &cobra.Command{
		Use:   "create --env [NAMESPACE/]NAME",
		Short: "Create a sandbox wherever there is room",
		Long: `Create a sandbox wherever there is room. With --claim-key the call can be repeated safely: it returns the same sandbox. If
that one has ended, its record is printed and the exit code is 9.

A create that has to wait tells on standard error where it waits and why. It takes as long as the server waits for a sandbox,
which --startup-timeout bounds, unless --timeout ends it before.

Without --claim-key a lost response loses the sandbox, so it ends 5 minutes after its start
unless it is used: ` + "`atollctl touch ID`" + ` within that time keeps it, as does --first-activity-timeout 0.`,
		Example: "  atollctl create --env python --claim-key build-17 -o name",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				if env != "" {
					return usagef("create takes no arguments, and %q is one; a command is run by exec in the sandbox, or by run", args[0])
				}
				return usagef("create takes no arguments; did you mean --env %s?", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if env == "" {
				return usagef("--env is missing; `atollctl envs` lists them")
			}
			request, err := f.message(env)
			if err != nil {
				return err
			}
			return a.connect(cmd.Context(), func(c clients) error {
				sandbox, err := a.create(cmd, c, request)
				if err != nil {
					return &hinted{err, createHint(err, request)}
				}
				return errors.Join(sandboxView.one(cmd.OutOrStdout(), a.output, sandbox), usable(sandbox))
			})
		},
	}
	f.bind(cmd)
	flags, r := cmd.Flags(), &f.request
	flags.StringVar(&env, "env", "", "the Env, as NAMESPACE/NAME, or NAME with -n")
	flags.StringVar(&r.ClaimKey, "claim-key", "", "your name for this claim, 1-128 printable characters")
	flags.StringToStringVar(&r.Labels, "label", nil, "labels, NAME=VALUE; on the Pod below tenant.navix.sh/")
	flags.StringToStringVar(&r.Metadata, "metadata", nil, "metadata kept with the sandbox, KEY=VALUE")
	flags.DurationVar(&f.startupTimeout, "startup-timeout", 0, "for queueing and starting; default the pool's, else 2m")
	flags.Var(&f.idle, "idle-timeout", "end it after so long without activity; 0: never; default the pool's, else never")
	flags.Var(&f.lifetime, "max-lifetime", "end it so long after its claim; default never")
	flags.Var(&f.firstActivity, "first-activity-timeout",
		"end it so long after its start if it was never used; 0: never; without --claim-key default 5m")
	flags.StringArrayVar(&f.variables, "env-var", nil,
		"NAME=VALUE for the processes that the daemon of runtime e2b starts, or NAME for atollctl's own value; repeatable")
	flags.StringArrayVar(&f.secrets, "secret", nil,
		"ENV=NAME/KEY, a variable whose value is a key of a Secret in the Env's namespace, which the platform team allows; repeatable")
	flags.StringVar(&r.Workdir, "workdir", "", "where processes of the daemon start, and relative paths begin; it is made if it is missing")
	flags.BoolVar(&r.DenyEgress, "deny-egress", false, "the sandbox may connect to nothing, whatever its Env opens")
	flags.StringVar(&r.ExecUser, "exec-user", "", "the account that they run as, and that --file's files are of; default the container's")
	flags.StringArrayVar(&f.files, "file", nil,
		"LOCAL:PATH, a file to begin with, with its permissions, written by the daemon; repeatable, at most 32 of 1 MiB in all")
	flags.StringVar(&f.hooks, "hooks", "", "a file with post-start hooks, a YAML or JSON list; - is standard input")
	f.wait = "ready"
	bindEnum(cmd, flags, &f.wait, "wait", "", "return when: ready, assigned, or none (needs --claim-key)", "ready", "assigned", "none")
	_ = cmd.RegisterFlagCompletionFunc("env", a.completeEnvs)
	_ = cmd.RegisterFlagCompletionFunc("clusters", a.completeClusters)
	return cmd
}

// answerSlack is how much longer than its startup timeout a create may take, so that the server reports the timeout and its reason first.
const answerSlack = 30 * time.Second

// create waits longer than the server does, and shows the user what it waits for.
func (a *app) create(cmd *cobra.Command, c clients, request *sandboxv1.CreateSandboxRequest) (*sandboxv1.Sandbox, error) {
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	limit := a.timeout
	if limit == 0 && request.GetStartupTimeout() != nil {
		limit = request.GetStartupTimeout().AsDuration() + answerSlack
	}
	if limit > 0 { // otherwise the pool sets the limit, and keepalive detects a dead server
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	telling, told := context.WithCancel(ctx)
	var progressing sync.WaitGroup
	progressing.Go(func() { progress(telling, cmd.ErrOrStderr(), c, request) })
	sandbox, err := c.sandboxes.CreateSandbox(ctx, request)
	told()
	progressing.Wait()
	return sandbox, err
}

// createHint returns advice for a failed create, or "" if the error contains it.
func createHint(err error, r *sandboxv1.CreateSandboxRequest) string {
	key := r.GetClaimKey()
	if key == "" {
		return ""
	}
	switch problem.FromError(err).Reason {
	case problem.ClaimKeyConflict:
		return "see what the key stands for: atollctl claim " + inNamespace(key, r.GetNamespace())
	case problem.OutcomeUnknown, problem.Deadline:
		return fmt.Sprintf("the same command with --claim-key %s asks for its sandbox again; to see where it is: atollctl claim %s",
			key, inNamespace(key, r.GetNamespace()))
	case problem.Unavailable, problem.Recovering, problem.NoCapacity, problem.QueueFull, problem.RateLimited:
		return "the same command with --claim-key " + key + " can be repeated safely"
	default:
		return ""
	}
}

func inNamespace(key, namespace string) string {
	if namespace == "default" {
		return key
	}
	return key + " -n " + namespace
}
