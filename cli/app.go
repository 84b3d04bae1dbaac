// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/usage"
)

// app holds what every command needs: the server's address and the output format.
type app struct {
	server, token, tokenFile, caFile string
	contextName                      string
	caData                           string        // PEM of the context
	side                             *hubSide      // the context that provides the token; nil: none does
	printed                          *printedToken // set together with side
	plaintext                        bool
	overTLS                          bool // the address began with https://
	timeout                          time.Duration
	output                           string
}

func (a *app) bind(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	a.output = "table"
	flags.StringVarP(&a.server, "server", "s", "localhost:8080", "address of a hub, or of a worker's local API: HOST:PORT, or a URL")
	flags.StringVar(&a.contextName, "context", "", "context to use, see atollctl config; default the current one")
	flags.StringVar(&a.token, "token", "", "API key; better in the environment or a file than on the command line")
	flags.StringVar(&a.tokenFile, "token-file", "", "file with the API key")
	flags.StringVar(&a.caFile, "ca-file", "", "certificates that sign the server's; default the system's")
	flags.BoolVar(&a.plaintext, "plaintext", false, "no TLS; the default for loopback addresses without --ca-file")
	flags.DurationVar(&a.timeout, "timeout", 0, "how long a call may take; default 2m, and for create as long as the server waits")
	cmd.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if err := notNegative(cmd.Flags()); err != nil {
			return err
		}
		if contextless(cmd) {
			return nil
		}
		return a.useContext(cmd.Flags())
	}
	bindEnum(cmd, flags, &a.output, "output", "o", strings.Join(outputs, ", "), outputs...)
}

// notNegative rejects negative durations, which have no meaning for any command.
func notNegative(flags *pflag.FlagSet) (err error) {
	flags.Visit(func(f *pflag.Flag) {
		if text := f.Value.String(); f.Value.Type() == "duration" && strings.HasPrefix(text, "-") && err == nil {
			err = usage.InvalidFlag(f.Name, text, "a duration such as 90s or 10m, not below 0")
		}
	})
	return err
}

// defaultTimeout bounds a call. A create may take as long as the server waits for a sandbox.
const defaultTimeout = 2 * time.Minute

func (a *app) limit() time.Duration { return cmp.Or(a.timeout, defaultTimeout) }

// clients are the service clients of one connection.
type clients struct {
	sandboxes sandboxv1.SandboxesClient
	claims    sandboxv1.ClaimsClient
	clusters  sandboxv1.ClustersClient
	envs      sandboxv1.EnvsClient
	templates sandboxv1.TemplatesClient
	hub       sandboxv1.HubClient
	keys      sandboxv1.KeysClient
	access    sandboxv1.AccessClient
	pki       sandboxv1.PkiClient
}

// call connects, runs f with a deadline, and closes the connection.
func (a *app) call(cmd *cobra.Command, f func(ctx context.Context, c clients) error) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), a.limit())
	defer cancel()
	return a.connect(ctx, func(c clients) error { return f(ctx, c) })
}

// connect calls f with a connection. ctx bounds how long fetching its token may take.
func (a *app) connect(ctx context.Context, f func(c clients) error) error {
	return a.dial(ctx, func(conn *grpc.ClientConn) error {
		return f(clients{
			sandboxes: sandboxv1.NewSandboxesClient(conn), claims: sandboxv1.NewClaimsClient(conn),
			clusters: sandboxv1.NewClustersClient(conn), envs: sandboxv1.NewEnvsClient(conn),
			templates: sandboxv1.NewTemplatesClient(conn),
			hub:       sandboxv1.NewHubClient(conn), keys: sandboxv1.NewKeysClient(conn), access: sandboxv1.NewAccessClient(conn),
			pki: sandboxv1.NewPkiClient(conn),
		})
	})
}

// resolve splits a URL into the server's address and whether to use TLS.
func (a *app) resolve() error {
	scheme, rest, isURL := strings.Cut(a.server, "://")
	if !isURL {
		return nil
	}
	address, path, _ := strings.Cut(rest, "/")
	if address == "" || path != "" || scheme != "http" && scheme != "https" {
		return invalidFlag("server", a.server, "HOST:PORT, http://HOST:PORT or https://HOST:PORT")
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		address = net.JoinHostPort(strings.Trim(address, "[]"), map[string]string{"http": "80", "https": "443"}[scheme])
	}
	a.server, a.plaintext, a.overTLS = address, scheme == "http", scheme == "https"
	return nil
}

// maxMessage bounds a response. A server bounds pages by the number of items, and a page of large Envs exceeds gRPC's default of 4 MiB.
const maxMessage = 64 << 20

func (a *app) dial(ctx context.Context, f func(conn *grpc.ClientConn) error) error {
	if err := a.resolve(); err != nil {
		return err
	}
	creds, err := a.credentials()
	if err != nil {
		return err
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(creds), grpc.WithUnaryInterceptor(a.explainCall),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		// A create may wait for a long time: without keepalive, a dead server would look like one that waits.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 10 * time.Second}),
	}
	token, err := a.bearer(ctx)
	if err != nil {
		return err
	}
	if token != "" {
		options = append(options, grpc.WithPerRPCCredentials(bearerToken{a.bearer, creds.Info().SecurityProtocol == "tls"}))
	}
	conn, err := grpc.NewClient(a.server, options...)
	if err != nil {
		return fmt.Errorf("connecting to %s: %w", a.server, err)
	}
	defer conn.Close()
	return f(conn)
}

// explainCall replaces the errors of this side of a connection with clearer ones. It returns the server's errors unchanged.
func (a *app) explainCall(
	ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	began := time.Now()
	err := invoke(ctx, method, req, reply, conn, opts...)
	if err == nil {
		return nil
	}
	p := problem.FromError(err)
	st := status.Convert(err)
	// Compare with the clock, because gRPC sometimes ends a call at its deadline shortly before its context ends.
	deadline, bounded := ctx.Deadline()
	if own := len(st.Details()) == 0; own && bounded && !time.Now().Before(deadline) {
		// The rounded time is 0 if the flag is below a second, or if calls before this one used the time.
		within := cmp.Or(time.Since(began).Round(time.Second), a.limit())
		if a.timeout > 0 {
			within = min(within, a.timeout)
		}
		return problem.New(problem.Deadline, "%s has not responded within %s (--timeout)", a.server, within)
	} else if own && st.Code() == codes.Unavailable {
		return problem.New(problem.Unavailable, "%s was not reached: %s", a.server, withHint(transportError.ReplaceAllString(p.Message, "$1")))
	}
	if p.Reason == problem.Unauthenticated {
		if token, err := a.bearer(ctx); err == nil && token == "" {
			return problem.New(problem.Unauthenticated, "%s wants an API key or a token, and none was given: --token-file, or atollctl config",
				a.server)
		}
	}
	return p
}

// withHint adds a hint if one side uses TLS and the other does not.
func withHint(text string) string {
	switch {
	case strings.Contains(text, "first record does not look like a TLS handshake"):
		return text + "; it speaks no TLS: leave out --ca-file and https://, or give --plaintext"
	case strings.Contains(text, "error reading server preface: EOF"), strings.Contains(text, "error reading server preface: read tcp"):
		return text + "; if it speaks TLS: give --ca-file, or https://HOST:PORT"
	default:
		return text
	}
}

// transportError matches how gRPC wraps the error of a connection.
var transportError = regexp.MustCompile(`^connection error: desc = "(?:transport: )?(?:Error while dialing: )?(.*)"$`)

func (a *app) credentials() (credentials.TransportCredentials, error) {
	config, err := a.tlsConfig()
	if err != nil {
		return nil, err
	}
	if config == nil {
		return insecure.NewCredentials(), nil
	}
	return credentials.NewTLS(config), nil
}

// tlsConfig returns nil for plaintext.
func (a *app) tlsConfig() (*tls.Config, error) {
	if a.plaintext || (a.caFile == "" && len(a.caData) == 0 && !a.overTLS && loopback(a.server)) {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if len(a.caData) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM([]byte(a.caData)) {
			return nil, usagef("caData of the context holds no PEM certificate")
		}
	}
	if a.caFile != "" {
		pem, err := os.ReadFile(a.caFile)
		if err != nil {
			return nil, usagef("reading --ca-file: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, usagef("--ca-file %s holds no PEM certificate", a.caFile)
		}
	}
	return config, nil
}

// printedToken caches the token that a context's command printed.
type printedToken struct {
	sync.Mutex
	token string
	until time.Time // it is reused until then
}

const (
	// printedLasts is how long a token that a command printed is reused, unless it expires earlier.
	printedLasts = 5 * time.Minute
	// printedSpare is how long before its expiry such a token is no longer reused.
	printedSpare = 10 * time.Second
)

// bearer returns the current token for the server. It may renew the token of a context.
func (a *app) bearer(ctx context.Context) (string, error) {
	if a.tokenFile == "" && a.side == nil {
		return a.token, nil
	}
	if a.tokenFile == "" {
		a.printed.Lock()
		defer a.printed.Unlock()
		if a.side.Exec != nil && a.printed.token != "" && time.Now().Before(a.printed.until) {
			return a.printed.token, nil
		}
		ctx, cancel := context.WithTimeout(ctx, a.limit())
		defer cancel()
		token, expires, err := a.side.token(ctx)
		a.printed.token, a.printed.until = token, time.Now().Add(printedLasts)
		if early := expires.Add(-printedSpare); !expires.IsZero() && early.Before(a.printed.until) {
			a.printed.until = early
		}
		return token, err
	}
	data, err := os.ReadFile(a.tokenFile)
	if err != nil {
		return "", usagef("reading --token-file: %w", err)
	}
	return strings.TrimSpace(string(data)), nil
}

// dropToken forgets the token that a context's command has printed, because the server does not take it any more.
func (a *app) dropToken() {
	if a.printed == nil {
		return
	}
	a.printed.Lock()
	defer a.printed.Unlock()
	a.printed.token = ""
}

func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}

// bearerToken attaches an API key or a token to calls. It does so over plaintext only if the user asked for plaintext or the server is on
// this machine.
type bearerToken struct {
	token func(context.Context) (string, error)
	tls   bool
}

func (b bearerToken) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	token, err := b.token(ctx)
	if err != nil && ctx.Err() != nil {
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	if err != nil {
		return nil, status.Error(codes.Unauthenticated, err.Error())
	}
	return map[string]string{"authorization": "Bearer " + token}, nil
}

func (b bearerToken) RequireTransportSecurity() bool { return b.tls }
