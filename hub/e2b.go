// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"navix.sh/atoll/hub/internal/builds"
	"navix.sh/atoll/pkg/e2b"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/reach"
	"navix.sh/atoll/pkg/sandboxd"
)

// e2bOptions configure the gateway for E2B clients.
type e2bOptions struct {
	e2b.Flags
	buildEnv       string
	buildSandboxes int
}

func (o *e2bOptions) bind(flags *pflag.FlagSet) {
	o.Bind(flags)
	flags.StringVar(&o.buildEnv, "e2b-build-env", "",
		"Env, NAME or NAMESPACE/NAME, whose sandboxes have the image that a template build of an E2B client names, if the Env's annotation "+
			"allowed-images has it; default: no images are taken")
	flags.IntVar(&o.buildSandboxes, "e2b-build-sandboxes", 1,
		"how many sandboxes try the image of such a build at once, so that as many nodes may pull it, if so many Pods are idle; 0: none, and "+
			"the first sandbox pulls it")
}

func (o *e2bOptions) validate(open, shared bool) error {
	err := o.Validate(open, shared, "--auth, --api-keys-file")
	if o.buildSandboxes < 0 || o.buildSandboxes > e2b.MaxBuildSandboxes {
		err = errors.Join(err, fmt.Errorf("--e2b-build-sandboxes %d is not valid, want 0 to %d", o.buildSandboxes, e2b.MaxBuildSandboxes))
	}
	return err
}

// tokens returns a function that computes the token of a sandbox's daemon.
func tokens(key func() ([]byte, error)) reach.Tokens {
	return func(sandbox string) (string, error) {
		k, err := key()
		if errors.Is(err, e2b.ErrNoKey) {
			return "", problem.New(problem.Unimplemented, "files and processes: %w", err)
		}
		if err != nil {
			return "", err
		}
		return sandboxd.Token(k, sandbox), nil
	}
}

func (h *hub) listenE2B(ctx context.Context, o *options) (err error) {
	if o.e2b.Listen == "" {
		return nil
	}
	h.e2b, err = o.e2b.Open(ctx, e2b.FrontOptions{
		DataDir: o.dataDir, Templates: builds.New(h.registryStore), BuildEnv: o.e2b.buildEnv,
		BuildSandboxes: o.e2b.buildSandboxes, TLS: h.publicTLS, Limits: o.limits,
		Log: h.log.WithName("e2b"),
	})
	return err
}
