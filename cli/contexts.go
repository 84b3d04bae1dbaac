// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"navix.sh/atoll/cli/internal/signin"
	"navix.sh/atoll/pkg/config"
	"navix.sh/atoll/pkg/durable"
	"navix.sh/atoll/pkg/problem"
)

// contextFile contains a user's contexts: the known hubs, and the source of the token for each.
type contextFile struct {
	CurrentContext string    `json:"currentContext,omitempty"`
	Contexts       []hubSide `json:"contexts,omitempty"`
}

// hubSide is one context. At most one of TokenFile, Exec and OIDC is set.
type hubSide struct {
	Name      string           `json:"name"`
	Server    string           `json:"server,omitempty"`
	CAFile    string           `json:"caFile,omitempty"`
	CAData    []byte           `json:"caData,omitempty"` // PEM, in base64
	Plaintext bool             `json:"plaintext,omitempty"`
	TokenFile string           `json:"tokenFile,omitempty"`
	Exec      *tokenCommand    `json:"exec,omitempty"`
	OIDC      *signin.Settings `json:"oidc,omitempty"`
}

// tokenCommand is a command that prints a token, or an ExecCredential, as kubectl's plugins do.
type tokenCommand struct {
	Command string   `json:"command"`
	Args    []string `json:"args,omitempty"`
}

// configHome is the environment variable with the directory of contexts and tokens.
const configHome = "ATOLL_CONFIG_HOME"

var contextName = regexp.MustCompile(`^[a-zA-Z0-9]([-._a-zA-Z0-9@/:]{0,126}[a-zA-Z0-9])?$`)

// configDir returns the directory of contexts and tokens.
func configDir() (string, error) {
	if dir := os.Getenv(configHome); dir != "" {
		return filepath.Abs(dir)
	}
	base := os.Getenv("XDG_CONFIG_HOME")
	if base == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("looking for the contexts (or set %s): %w", configHome, err)
		}
		base = filepath.Join(home, ".config")
	}
	return filepath.Join(base, "atoll"), nil
}

func loadContexts() (*contextFile, error) {
	dir, err := configDir()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "config.yaml")
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &contextFile{}, nil
	case err != nil:
		return nil, fmt.Errorf("reading contexts: %w", err)
	}
	file := &contextFile{}
	if err := yaml.UnmarshalStrict(data, file); err != nil {
		return nil, usagef("reading contexts, %s: %w", path, err)
	}
	for i := range file.Contexts {
		if err := file.Contexts[i].check(); err != nil {
			return nil, usagef("%s: contexts[%d] %q: %w", path, i, file.Contexts[i].Name, err)
		}
	}
	return file, nil
}

func (h *hubSide) check() error {
	if !contextName.MatchString(h.Name) {
		return fmt.Errorf("name: %q is not valid, want up to 128 letters, digits and any of -._@/:, such as prod", h.Name)
	}
	sources := 0
	for _, has := range []bool{h.TokenFile != "", h.Exec != nil, h.OIDC != nil} {
		if has {
			sources++
		}
	}
	if sources > 1 {
		return errors.New("tokenFile, exec, oidc: want one of them at most")
	}
	if h.Exec != nil && h.Exec.Command == "" {
		return errors.New("exec.command: is missing")
	}
	if h.CAFile != "" && len(h.CAData) > 0 {
		return errors.New("caFile beside caData, want one of them at most")
	}
	return nil
}

// save replaces the file. The file may name commands that are run, so only its user may read or write it.
func (f *contextFile) save() error {
	dir, err := configDir()
	if err != nil {
		return err
	}
	data, err := yaml.Marshal(f)
	if err != nil {
		return fmt.Errorf("writing contexts: %w", err)
	}
	if err := durable.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("writing contexts: %w", err)
	}
	return durable.WriteFile(filepath.Join(dir, "config.yaml"), 0o600, func(w *os.File) error {
		_, err := w.Write(data)
		return err
	})
}

func (f *contextFile) find(name string) *hubSide {
	for i := range f.Contexts {
		if f.Contexts[i].Name == name {
			return &f.Contexts[i]
		}
	}
	return nil
}

// must is find for a name that the user gave; it fails if there is no such context.
func (f *contextFile) must(name string) (*hubSide, error) {
	if found := f.find(name); found != nil {
		return found, nil
	}
	if name == "" {
		return nil, usagef("no context is in use; name one with --context, or make one by atollctl config set-context")
	}
	return nil, usagef("no context %q, want one of: %s", name, cmp.Or(strings.Join(f.names(), ", "), "none; see atollctl config set-context"))
}

func (f *contextFile) names() (out []string) {
	for i := range f.Contexts {
		out = append(out, f.Contexts[i].Name)
	}
	slices.Sort(out)
	return out
}

// useContext fills in from the context what flags and environment do not set. If they set a server themselves, the current context does not
// apply: its token is not for that server.
func (a *app) useContext(flags *pflag.FlagSet) error {
	said := func(flag string) bool { f := flags.Lookup(flag); return f != nil && f.Changed }
	if err := a.nearerToken(flags); err != nil {
		return err
	}
	if f := flags.Lookup("context"); f != nil {
		if other, alone := f.Annotations[config.LineOnly]; alone { // --context is kubectl's in this command
			a.contextName = cmp.Or(other...)
		}
	}
	if said("server") && a.contextName == "" {
		return nil
	}
	file, err := loadContexts()
	if err != nil {
		return err
	}
	name := cmp.Or(a.contextName, file.CurrentContext)
	if name == "" {
		return nil
	}
	side, err := file.must(name)
	if err != nil {
		return err
	}
	if !said("server") && side.Server != "" {
		a.server = side.Server
		if !said("plaintext") {
			a.plaintext = side.Plaintext
		}
	}
	if !said("ca-file") {
		a.caFile, a.caData = side.CAFile, string(side.CAData)
	}
	if !said("token") && !said("token-file") {
		a.tokenFile, a.side, a.printed = side.TokenFile, side, &printedToken{}
	}
	return nil
}

// nearerToken drops the one of --token and --token-file whose source is farther from the command line. If both are from the environment, or
// both from the file of --config, the token file wins.
func (a *app) nearerToken(flags *pflag.FlagSet) error {
	if a.token == "" || a.tokenFile == "" {
		return nil
	}
	token, file := config.SourceOf(flags.Lookup("token")), config.SourceOf(flags.Lookup("token-file"))
	if token == config.FromLine && file == config.FromLine {
		return usagef("--token and --token-file exclude each other")
	}
	if token > file {
		a.tokenFile = ""
	} else {
		a.token = ""
	}
	return nil
}

// contextless reports whether a command, or a group that contains it, needs no context.
func contextless(cmd *cobra.Command) bool {
	for c := cmd; c != nil; c = c.Parent() {
		if _, ok := c.Annotations[withoutContext]; ok {
			return true
		}
	}
	return false
}

// tokenPatience bounds how long obtaining the token of a context may take.
const tokenPatience = time.Minute

// token returns the token of the context, and when it expires if its command says so.
func (h *hubSide) token(ctx context.Context) (token string, expires time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, tokenPatience)
	defer cancel()
	switch {
	case h.Exec != nil:
		return h.Exec.run(ctx)
	case h.OIDC != nil:
		dir, err := configDir()
		if err != nil {
			return "", time.Time{}, err
		}
		token, err = signin.NewStore(dir, h.Name).Token(ctx, *h.OIDC)
		if errors.Is(err, signin.ErrEnded) {
			err = &hinted{problem.New(problem.Unauthenticated, "%w", err), "sign in: atollctl login --context " + h.Name}
		}
		return token, time.Time{}, err
	}
	return "", time.Time{}, nil
}

// maxPrinted bounds the output of a token command.
const maxPrinted = 64 << 10

// run returns the token that the command prints, and when it expires; zero: the command does not say.
func (c *tokenCommand) run(ctx context.Context) (token string, expires time.Time, err error) {
	cmd := exec.CommandContext(ctx, c.Command, c.Args...)
	cmd.Stdin, cmd.Stderr = os.Stdin, os.Stderr // the command may prompt the user
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return "", expires, fmt.Errorf("getting a token from %s: %w", c.Command, err)
	}
	if len(out) > maxPrinted {
		return "", expires, fmt.Errorf("getting a token from %s: it prints %d bytes, want at most %d", c.Command, len(out), maxPrinted)
	}
	out = bytes.TrimSpace(out)
	if !bytes.HasPrefix(out, []byte("{")) {
		return string(out), expires, nil
	}
	var credential struct {
		Status struct {
			Token   string `json:"token"`
			Expires string `json:"expirationTimestamp"`
		} `json:"status"`
	}
	if err := json.Unmarshal(out, &credential); err != nil || credential.Status.Token == "" {
		return "", expires, fmt.Errorf("getting a token from %s: it prints neither a token nor an ExecCredential with one", c.Command)
	}
	if text := credential.Status.Expires; text != "" {
		if expires, err = time.Parse(time.RFC3339, text); err != nil {
			return "", expires, fmt.Errorf("getting a token from %s: status.expirationTimestamp: %q is not valid, want a time such as "+
				"2026-03-01T12:00:00Z", c.Command, text)
		}
	}
	return credential.Status.Token, expires, nil
}
