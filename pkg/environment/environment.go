// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"connectrpc.com/connect"
	"k8s.io/utils/clock"

	"navix.sh/atoll/api/envd"
	filesystemv1 "navix.sh/atoll/api/envd/filesystem"
	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/outcome"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/reach"
	"navix.sh/atoll/pkg/sandboxd"
	"navix.sh/atoll/pkg/validate"
	"navix.sh/atoll/pkg/wallclock"
)

const (
	// patience bounds how long the daemon of a running sandbox may take to respond.
	patience = 20 * time.Second
	pause    = 200 * time.Millisecond
	maxReply = 64 << 10 // of the daemon, in one message
)

// Options configure a Setter. All are required.
type Options struct {
	Opener reach.Opener
	// Key returns the key of package e2b, which is the same at each replica that serves the sandbox. It is called only if a claim has data for
	// the daemon.
	Key   func() ([]byte, error)
	Clock clock.Clock
}

// Setter sets the environment of sandboxes.
type Setter struct {
	opts Options
}

// New returns a Setter.
func New(o Options) *Setter { return &Setter{o} }

// Ready returns an error if no environment can be set here.
func (s *Setter) Ready() error {
	if _, err := s.opts.Key(); err != nil {
		return problem.New(problem.Misconfigured, "what a sandbox's daemon sets: %w", err)
	}
	return nil
}

// Environment passes the parts of a claim that are for the daemon (validate.Belongings) to sandboxes.
type Environment interface {
	// Ready returns an error if this is not possible here.
	Ready() error
	// Set passes them to a started sandbox, and ends its preparation. The context identifies the caller.
	Set(ctx context.Context, sandbox *sandboxv1.Sandbox, of *sandboxv1.CreateSandboxRequest) error
}

// Equip calls Set for a started sandbox, if there is data to pass or a preparation to end. It fails for a sandbox without a daemon.
func Equip(ctx context.Context, by Environment, sandbox *sandboxv1.Sandbox, of *sandboxv1.CreateSandboxRequest) error {
	fields := validate.Belongings(of)
	if !outcome.Started(sandbox) || len(fields) == 0 && !outcome.IsPreparing(sandbox) {
		return nil
	}
	if err := taken(sandbox, fields); err != nil {
		return err
	}
	return by.Set(ctx, sandbox, of)
}

// taken returns an error if the sandbox has no daemon that receives these fields of a claim (validate.Belongings).
func taken(sandbox *sandboxv1.Sandbox, fields []string) error {
	if slices.ContainsFunc(sandbox.GetRuntimes(), func(r *sandboxv1.Runtime) bool { return r.GetName() == validate.DaemonRuntime }) {
		return nil
	}
	return validate.NoDaemon(fields).Err()
}

// Set passes a claim's data to the daemon of a started sandbox, and then ends the preparation: the sandbox becomes RUNNING, and Set updates
// its phase accordingly. The context identifies the caller.
func (s *Setter) Set(ctx context.Context, sandbox *sandboxv1.Sandbox, of *sandboxv1.CreateSandboxRequest) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if len(validate.Belongings(of)) > 0 {
		if err := s.prepare(ctx, sandbox.GetId(), of); err != nil {
			return err
		}
	}
	if !outcome.IsPreparing(sandbox) {
		return nil
	}
	prepared := &federationv1.ReachCall{What: &federationv1.ReachCall_Prepared{Prepared: &federationv1.PreparedReach{}}}
	if err := s.open(ctx, sandbox.GetId(), prepared); err != nil {
		return interrupted("the sandbox's preparation", err)
	}
	sandbox.Phase, sandbox.StatusDetail = sandboxv1.Phase_RUNNING, nil
	return nil
}

func (s *Setter) prepare(ctx context.Context, id string, of *sandboxv1.CreateSandboxRequest) error {
	if err := s.Ready(); err != nil {
		return err
	}
	key, err := s.opts.Key()
	if err != nil {
		return err
	}
	daemon := sandboxd.Dial(sandboxd.Token(key, id), patience, func(ctx context.Context) (net.Conn, error) {
		return reach.Prepare(ctx, s.opts.Opener, id, envd.Port)
	})
	if err := s.begin(ctx, daemon, of); err != nil {
		return err
	}
	if err := s.give(ctx, id, daemon.Token, of.GetSecrets()); err != nil {
		return err
	}
	if err := enter(ctx, daemon, of); err != nil {
		return err
	}
	for i, file := range of.GetFiles() {
		if err := write(ctx, daemon, fmt.Sprintf("files[%d]", i), file); err != nil {
			return err
		}
	}
	return nil
}

// begin sets variables and defaults as soon as the daemon responds.
func (s *Setter) begin(ctx context.Context, daemon *sandboxd.Client, of *sandboxv1.CreateSandboxRequest) error {
	defaults := sandboxd.Defaults{Env: of.GetEnvVars(), User: of.GetExecUser(), Workdir: of.GetWorkdir()}
	var last error
	for {
		again, err := try(ctx, daemon, defaults)
		if !again {
			return err
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		if wallclock.Sleep(ctx, s.opts.Clock, pause) != nil {
			return reach.NotReached(patience, reach.NoDaemon(last), fmt.Errorf("envVars: %w", last))
		}
	}
}

// give makes the sandbox's worker pass values of Secrets to the daemon, which begin gave its token. The values do not pass through here.
func (s *Setter) give(ctx context.Context, id, token string, refs []*sandboxv1.SandboxSecret) error {
	if len(refs) == 0 {
		return nil
	}
	if err := s.open(ctx, id, &federationv1.ReachCall{
		What: &federationv1.ReachCall_Secrets{Secrets: &federationv1.SecretsReach{Secrets: refs, Token: token}},
	}); err != nil {
		return interrupted("secrets", err)
	}
	return nil
}

// open makes a call whose tunnel carries no data.
func (s *Setter) open(ctx context.Context, id string, what *federationv1.ReachCall) error {
	what.Preparing = true
	tunnel, err := s.opts.Opener.Open(ctx, id, what)
	if err != nil {
		return err
	}
	tunnel.Close(nil)
	return nil
}

// try makes one request. again reports whether a retry may help. Errors do not contain the daemon's response, which may contain a value.
func try(ctx context.Context, daemon *sandboxd.Client, defaults sandboxd.Defaults) (again bool, err error) {
	err = daemon.Init(ctx, defaults, time.Time{})
	var unreached *problem.Error
	var refused *sandboxd.StatusError
	switch {
	case errors.As(err, &unreached) && unreached.Reason != problem.Unavailable:
		return false, unreached
	case errors.As(err, &refused):
		return false, problem.New(problem.Misconfigured, "envVars: the sandbox's daemon refused them with status %d at port %d",
			refused.Status, envd.Port)
	default:
		return err != nil, err
	}
}

// enter creates the working directory if it is missing, and checks whether the account exists.
func enter(ctx context.Context, daemon *sandboxd.Client, of *sandboxv1.CreateSandboxRequest) error {
	var err error
	field := "execUser"
	switch {
	case of.GetWorkdir() != "":
		field = "workdir"
		_, err = sandboxd.Call[filesystemv1.MakeDirResponse](ctx, daemon, envd.FilesystemMakeDir, maxReply, time.Time{},
			&filesystemv1.MakeDirRequest{Path: of.GetWorkdir()})
	case of.GetExecUser() != "":
		_, err = sandboxd.Call[filesystemv1.StatResponse](ctx, daemon, envd.FilesystemStat, maxReply, time.Time{},
			&filesystemv1.StatRequest{Path: "/"})
	}
	switch code := connect.CodeOf(err); {
	case err == nil || code == connect.CodeAlreadyExists:
		return nil
	case code == connect.CodeUnauthenticated || field == "execUser" && code == connect.CodePermissionDenied:
		return problem.InvalidField("execUser", of.GetExecUser(), "an account of the sandbox's image, as which its container may act")
	case code == connect.CodePermissionDenied || code == connect.CodeInvalidArgument || code == connect.CodeResourceExhausted:
		return problem.InvalidField("workdir", "", "a folder that is there, or can be made as execUser (the daemon says "+code.String()+")")
	default:
		return interrupted(field, err)
	}
}

// write writes one file. Errors do not contain the daemon's response, which contains the path.
func write(ctx context.Context, daemon *sandboxd.Client, field string, file *sandboxv1.SandboxFile) error {
	mode := validate.FileMode(file)
	to := daemon.Base + "/files?" + url.Values{"path": {file.GetPath()}, sandboxd.ModeParameter: {mode}}.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, to, bytes.NewReader(file.GetContent()))
	if err != nil {
		return interrupted(field, errors.New("it does not make a request"))
	}
	request.Header.Set("Content-Type", "application/octet-stream")
	response, err := daemon.Do(request, time.Time{})
	var refused *sandboxd.StatusError
	switch {
	case errors.As(err, &refused) && refused.Status == http.StatusUnauthorized:
		return problem.New(problem.Misconfigured, "%s: the sandbox's daemon did not take it: it has another token", field)
	case refused != nil && (refused.Status < http.StatusInternalServerError || refused.Status == http.StatusInsufficientStorage):
		return problem.InvalidField(field, "", "a file that the sandbox's daemon can write as execUser; it refused this one with status "+
			strconv.Itoa(refused.Status))
	case err != nil:
		return interrupted(field, err)
	}
	set := response.Header.Get(sandboxd.ModeHeader)
	if err := response.Body.Close(); err != nil {
		return interrupted(field, err)
	}
	if set != mode {
		return problem.New(problem.Misconfigured, "%s: the sandbox's daemon does not set permissions; its image has an older one", field)
	}
	return nil
}

// interrupted returns the error for a daemon that stopped responding.
func interrupted(field string, err error) error {
	var known *problem.Error
	if errors.As(err, &known) {
		return known
	}
	var refused *sandboxd.StatusError
	if errors.As(err, &refused) {
		err = fmt.Errorf("status %d", refused.Status)
	} else if call := (*connect.Error)(nil); errors.As(err, &call) {
		err = errors.New(call.Code().String())
	}
	return problem.New(problem.Misconfigured, "%s: the sandbox's daemon did not take it at port %d: %s", field, envd.Port,
		validate.Clip(err.Error()))
}
